"""An open database of the writer, with checks that its file and its logs are still at their paths.

A removed log exists only in the writer's connection.  Every reader finds another log or none, and the content of the
removed log would be lost with the writer.
"""

import contextlib
import logging
from pathlib import Path

from gpuwatch import clock
from gpuwatch.store import files
from gpuwatch.store.database import Database

_log = logging.getLogger("gpuwatch.store")

_SCHEMA_READ = "SELECT count(*) FROM sqlite_schema"  # a connection opens its logs with its first read


class HeldFile:
    """Base of the written files.  ``durable``: a commit survives loss of power.

    Raises sqlite3.Error: when the file cannot be read.
    """

    def __init__(self, path: Path, db: Database, *, durable: bool) -> None:
        self.path = path
        self.database = db
        self._durable = durable
        self._is_open = True
        self._identity = files.identity(path)
        db.execute(_SCHEMA_READ).fetchone()
        self._has_log = db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        self._logs = self._lying_logs()

    @property
    def is_there(self) -> bool:
        """Return whether the file is still at its path."""
        return files.identity(self.path) == self._identity

    @property
    def has_its_logs(self) -> bool:
        """Return whether the write-ahead log and index next to the file are the ones being written; True outside WAL mode."""
        return not self._has_log or (None not in self._logs.values() and self._lying_logs() == self._logs)

    def renew_logs(self) -> bool:
        """Save the lost log's content into the file and begin a new log; return False while a reader prevents that.

        After an error, call the method again: a second call continues after the completed steps.

        Raises REFUSALS: when SQLite cannot save the content, or open the file again.
        Raises OSError: when another process's log cannot be set aside.
        """
        if self._is_open:
            if not files.write_back(self.database):
                return False
            self._remove_foreign_logs()
            # Close the old connection first: SQLite shares one index among all connections of a process.
            self.database.conn.close()
            self._is_open = False
        self.database = files.reopen_to_write(self.path, durable=self._durable)
        self._is_open = True
        self.database.execute(_SCHEMA_READ).fetchone()
        self._logs = self._lying_logs()
        return True

    def _lying_logs(self) -> dict[str, tuple[int, int] | None]:
        return {suffix: files.identity(self._beside(suffix)) for suffix in ("-wal", "-shm")}

    def _remove_foreign_logs(self) -> None:
        """Set aside another process's log, which SQLite would replay over the saved data, and remove that log's index."""
        for suffix, found in self._lying_logs().items():
            path = self._beside(suffix)
            if found is None or found == self._logs[suffix]:
                continue
            if suffix == "-wal" and files.size_bytes(path):
                aside = path.with_name(f"{path.name}.replaced-{int(clock.wall_s())}")
                path.rename(aside)
                _log.warning("%s: found another process's log, set aside as %s", path, aside.name)
            elif suffix == "-shm":
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()

    def _beside(self, suffix: str) -> Path:
        return Path(f"{self.path}{suffix}")
