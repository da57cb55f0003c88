"""A state folder locked by its only writer: the ledger and the segments, which are created again after a removal."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from gpuwatch import clock
from gpuwatch.errors import StoreError
from gpuwatch.store import files
from gpuwatch.store.ledger import Ledger, open_ledger
from gpuwatch.store.segment import Segment
from gpuwatch.store.segments import Segments
from gpuwatch.store.store_options import WriterFacts

_log = logging.getLogger("gpuwatch.store")


class StateFolder:
    """The open files of a state folder.  ``ledger`` and the live segment may be replaced: keep no reference to them.

    Raises StoreError: when the folder cannot be used.  Methods raise REFUSALS, OSError, StoreError.
    """

    def __init__(self, path: Path, facts: WriterFacts, *, segment_bytes: int, evidence_bytes: int) -> None:
        self.path = path
        self._facts = facts
        self._evidence_bytes = evidence_bytes
        try:
            self._lock = self._locked()
        except OSError as error:
            raise StoreError(f"{path}: expected a folder that can be written, found: {error.strerror}") from error
        with self.opening():
            kind = files.file_system(path)
            self.wal = kind not in files.NETWORK_TYPES
            if not self.wal:
                _log.warning("%s is on a network file system (%s): commits are slower and readers wait for them", path, kind)
            self.ledger, self._set_aside_count = self._open_ledger()
            self.segments = Segments(path, facts, wal=self.wal, segment_bytes=segment_bytes)
            self.ledger.end_unfinished(self.segments.live.last_ns())

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Raise StoreError for any error of disk or database in the block, and release the folder."""
        try:
            yield
        except (*files.REFUSALS, OSError) as error:
            os.close(self._lock)
            raise StoreError(f"{self.path}: expected a usable store, found: {error}") from error
        except StoreError:
            os.close(self._lock)
            raise

    @property
    def is_there(self) -> bool:
        """Return whether the files are still at their paths."""
        return self.ledger.is_there and self.segments.live.is_there

    @property
    def set_aside_count(self) -> int:
        return self._set_aside_count + self.segments.set_aside_count

    def set_evidence(self, evidence_bytes: int) -> None:
        """Bound the packed evidence of this ledger and of later ones."""
        self._evidence_bytes = self.ledger.evidence_bytes = evidence_bytes

    def begin_again(self) -> None:
        """Create the missing files after the folder or its files were removed, or the ledger was set aside."""
        if not files.is_locked_by(self._lock, self.path):
            lock, self._lock = self._lock, self._locked()  # refused if another daemon owns the folder by now
            os.close(lock)
        if not self.ledger.is_there:
            self.ledger.database.conn.close()
            self.ledger, _ = self._open_ledger()
            self.ledger.put_clock(self._facts.now_ns(), self._facts.wall_offset_ns())
        if not self.segments.live.is_there:
            self.segments.replace_live()
        _log.error("%s: files of the store were removed while the daemon was running; created new ones", self.path)

    def renew_logs(self) -> None:
        """Save a write-ahead log that was removed or replaced, and begin a new one.

        While a reader holds the lost log, the writer continues in that log, and saves it later.
        """
        for each in (self.ledger, self.segments.live):
            if not each.has_its_logs and each.renew_logs():
                _log.warning(
                    "%s: the write-ahead log (-wal, -shm) was removed or replaced; saved its rows, began a new log", each.path
                )

    def broken(self) -> list[Ledger | Segment]:
        return [each for each in (self.segments.live, self.ledger) if self._is_broken(each)]

    def set_aside(self, broken: Ledger | Segment, why: object) -> None:
        """Set aside a damaged file.  A segment is replaced at once, a ledger at the next commit."""
        if broken is self.segments.live:
            self.segments.replace_live(why)
        else:
            broken.database.conn.close()
            files.set_aside(broken.path, why, wall_s=clock.wall_s())
            self._set_aside_count += 1

    def close(self) -> None:
        self.segments.close()
        self.ledger.close()
        os.close(self._lock)

    def _locked(self) -> int:
        self.path.mkdir(
            parents=True, exist_ok=True, mode=0o700 | (self._facts.mode & 0o044) * 5 // 4
        )  # read permission implies search permission
        return files.lock(self.path, mode=self._facts.mode)

    def _open_ledger(self) -> tuple[Ledger, int]:
        return open_ledger(self.path, self._facts, wal=self.wal, evidence_bytes=self._evidence_bytes)

    def _is_broken(self, file: Ledger | Segment) -> bool:
        try:
            return files.check(file.database, now_ns=self._facts.now_ns) is not None
        except files.REFUSALS as error:
            return files.is_broken(error)
