"""One boot in a store: from when to when there is anything of it, which GPUs were read, what happened, what was begun."""

# ruff: noqa: S608 - the names in these statements are ours; values are always bound

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from annotate.evidence import Event
from gpuwatch.errors import StoreError
from gpuwatch.store import files

_TABLES = ("fast", "slow", "edge", "census", "power")


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """One segment: when its first and last rows are of, whose they are, and where they came from."""

    begin_ns: int
    end_ns: int
    uuids: tuple[str, ...]
    source: str


class Boot:
    """The last boot of which a store knows.  Every method raises StoreError, in one line, where the store cannot say it."""

    def __init__(self, state: Path) -> None:
        self._state = Path(state)
        self._path = self._state / files.DATABASE
        self._db = files.open_to_read(self._path)
        try:
            last = self._rows("SELECT boot_id, wall_offset_ns FROM clocks ORDER BY rowid DESC LIMIT 1")
        except StoreError:
            self.close()
            raise
        self.boot_id: str | None = last[0][0] if last else None
        self._closed: dict[Path, SegmentSpan | None] = {}

    def close(self) -> None:
        self._db.conn.close()

    def wall_offset_ns(self) -> int | None:
        """What to add to a moment of this boot to get wall time, as it was last; None if nothing was ever watched."""
        sql = "SELECT wall_offset_ns FROM clocks WHERE boot_id = ? ORDER BY begin_ns DESC LIMIT 1"
        rows = self._rows(sql, self.boot_id)
        return rows[0][0] if rows else None

    def stretches(self) -> list[SegmentSpan]:
        """Segments of this boot that hold anything, oldest first.  Only the newest can have grown since."""
        paths = sorted(self._state.glob(files.SEGMENTS))
        for path in paths[:-1]:
            if path not in self._closed:
                self._closed[path] = self._stretch(path)
        found = [self._closed[path] for path in paths[:-1]] + ([self._stretch(paths[-1])] if paths else [])
        return [stretch for stretch in found if stretch is not None]

    def begun(self, at_ns: int, *, most: int) -> tuple[list[str], int]:
        """Ids of the windows that had begun by then, the newest first and so many at most, and how many more there are."""
        where = "FROM runs WHERE boot_id = ? AND begin_ns <= ?"
        ids = [
            row[0]
            for row in self._rows(f"SELECT id {where} ORDER BY begin_ns DESC, id DESC LIMIT ?", self.boot_id, at_ns, most)
        ]
        count: int = self._rows(f"SELECT count(*) {where}", self.boot_id, at_ns)[0][0]
        return ids, count - len(ids)

    def events(self, begin_ns: int, end_ns: int) -> tuple[Event, ...]:
        """Of every GPU, oldest first, both ends included."""
        sql = "SELECT uuid, at_ns, kind, value, text FROM events WHERE boot_id = ? AND at_ns BETWEEN ? AND ? ORDER BY at_ns, id"
        return tuple(
            Event(uuid=uuid, at_ns=at_ns, kind=kind, value=value, text=text)
            for uuid, at_ns, kind, value, text in self._rows(sql, self.boot_id, begin_ns, end_ns)
        )

    def lost(self, uuids: Sequence[str], at_ns: int) -> dict[str, str]:
        """Which of these GPUs had been lost and not come back by then, and why."""
        sql = (
            "SELECT kind, text FROM events WHERE boot_id = ? AND uuid = ? AND at_ns <= ? AND kind IN ('lost', 'back')"
            " ORDER BY at_ns DESC, id DESC LIMIT 1"
        )
        last = {uuid: self._rows(sql, self.boot_id, uuid, at_ns) for uuid in uuids}
        return {uuid: rows[0][1] or "it was lost" for uuid, rows in last.items() if rows and rows[0][0] == "lost"}

    def _stretch(self, path: Path) -> SegmentSpan | None:
        """None for a segment of another boot, one without a row, or one that was dropped meanwhile."""
        try:
            db = files.open_to_read(path)
        except StoreError:
            if not path.exists():
                return None
            raise
        try:
            with _told(path):
                segment = db.execute("SELECT boot_id, source FROM segment").fetchone()
                if segment is None or segment[0] != self.boot_id:
                    return None
                every = [ends for table in _TABLES if (ends := _ends(db, table)) is not None]
                uuids = tuple(row[0] for row in db.execute("SELECT uuid FROM gpus ORDER BY gpu"))
                # The first table that has rows: a blob of power begins before anything else was read.
                return SegmentSpan(every[0][0], max(end for _, end in every), uuids, segment[1]) if every else None
        finally:
            db.conn.close()

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:  # whatever SQLite can bind
        with _told(self._path):
            return self._db.execute(sql, list(values)).fetchall()


def _ends(db: Database, table: str) -> tuple[int, int] | None:
    """When its first row is of, and until when its last one of each GPU stood: few rows, by the key."""
    first = db.execute(f"SELECT at_ns FROM {table} ORDER BY id LIMIT 1").fetchone()
    if first is None:
        return None
    stood = "0" if table == "power" else "stood_ms"
    last = db.execute(f"SELECT at_ns + 1000000 * {stood} FROM {table} ORDER BY id DESC LIMIT 64").fetchall()
    return first[0], max(row[0] for row in last)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: expected a readable gpuwatch database, found: {error}") from error
