"""The segments of one state folder: the live one, rotation, and the removal of old ones."""

import datetime as dt
import logging
import sqlite3
from pathlib import Path

from gpuwatch import clock
from gpuwatch.store import files, migrate, schema
from gpuwatch.store.segment import Segment
from gpuwatch.store.store_options import WriterFacts

_log = logging.getLogger("gpuwatch.store")


class Segments:
    """All segments of a folder, of which one is live.  Methods raise sqlite3.Error or OSError when the disk or a file fails."""

    def __init__(self, folder: Path, facts: WriterFacts, *, wal: bool, segment_bytes: int) -> None:
        self._folder = folder
        self._facts = facts
        self._wal = wal
        self.segment_bytes = segment_bytes
        self.set_aside_count = 0
        self.dropped_count = 0
        self._settled: set[Path] = set()
        self.live = self._resume() or self._create()
        self.live.note_absence(facts.now_ns())

    def paths(self) -> list[Path]:
        """Return every segment, oldest first."""
        return sorted(self._folder.glob(files.SEGMENTS))

    def is_full(self) -> bool:
        return self.live.pages_bytes >= self.segment_bytes

    def rotate_if_full(self) -> bool:
        """Begin a new segment, close the old one, and return True if the live one is full."""
        if not self.is_full():
            return False
        old, self.live = self.live, self._create()
        old.close()
        return True

    def replace_live(self, why: object = None) -> None:
        """Begin a new segment after the live one was removed; with a reason, set the broken live one aside first."""
        lost = self.live
        lost.database.conn.close()
        if why is not None:
            self._set_aside(lost.path, why)
        self.live = self._create()
        self.live.note_loss(lost, self._facts.now_ns())

    def drop_oldest(self) -> bool:
        """Remove the oldest closed segment; return False if only the live one is left."""
        closed = [path for path in self.paths() if path != self.live.path]
        if not closed:
            return False
        files.remove(closed[0])
        self.dropped_count += 1
        _log.info("dropped %s", closed[0].name)
        return True

    def retain(self, budget_bytes: int, max_age_s: float, *, wall_s: float, other_bytes: int) -> None:
        """Drop the oldest segments, but never the live one, until all files fit the budget and the age limit."""
        while (paths := self.paths()) and paths[0] != self.live.path:
            total_bytes = other_bytes + self.size_bytes
            try:
                age_s = wall_s - paths[0].stat().st_mtime
            except FileNotFoundError:
                continue
            if total_bytes <= budget_bytes and age_s <= max_age_s:
                return
            self.drop_oldest()

    def settle(self) -> None:
        """Make plain files of closed segments that a crash or a reader left with a log."""
        for path in self.paths():
            if path != self.live.path and path not in self._settled:
                try:
                    if not files.needs_settling(path) or files.settle(path):
                        self._settled.add(path)
                except files.REFUSALS as error:
                    if files.is_broken(error):
                        self._set_aside(path, error)

    @property
    def size_bytes(self) -> int:
        """Return the size of all segments, without the live one's log."""
        return self.live.pages_bytes + sum(files.size_bytes(path) for path in self.paths() if path != self.live.path)

    def close(self) -> None:
        self.live.close()

    def _resume(self) -> Segment | None:
        """Return the newest segment if it is sound and of this boot; else close it or set it aside, and return None."""
        paths = self.paths()
        if not paths:
            return None
        path = paths[-1]
        try:
            db = files.open_to_write(path, mode=self._facts.mode, wal=self._wal, durable=False)
        except files.REFUSALS as error:
            if files.is_broken(error):
                self._set_aside(path, error)
            return None
        try:
            if migrate.is_newer(db, schema.READINGS):
                db.conn.close()
                return None
            wrong: object = files.check(db, now_ns=self._facts.now_ns)
            if wrong is None:
                schema.prepare_readings(db, path)
                row = db.execute("SELECT boot_id, begin_ns FROM segment").fetchone()
                if row and row[0] == self._facts.boot_id and row[1] <= self._facts.now_ns():
                    return Segment(path, db, self._facts.boot_id)
        except files.REFUSALS as error:
            wrong = error
        if wrong is None:
            files.close_plain(db, path)
        else:
            db.conn.close()
            self._set_aside(path, wrong)
        return None

    def _create(self) -> Segment:
        offset_ns = self._facts.wall_offset_ns()
        begin_ns = self._facts.now_ns()
        began = dt.datetime.fromtimestamp((begin_ns + offset_ns) / 1e9, dt.UTC)
        name = f"readings-{began:%Y%m%dT%H%M%S}"
        # Names sort by time even after the wall clock was set back.
        last = max((path.stem for path in self.paths()), default="")
        path = self._folder / f"{name}.db"
        if name <= last:
            stem, _, serial = last.partition("_")
            path = self._folder / f"{stem}_{int(serial or 0) + 1:06d}.db"
        try:
            return Segment.create(path, self._facts, begin_ns=begin_ns, wall_offset_ns=offset_ns, wal=self._wal)
        except sqlite3.Error:
            files.remove(path)
            raise

    def _set_aside(self, path: Path, why: object) -> None:
        files.set_aside(path, why, wall_s=clock.wall_s())
        self.set_aside_count += 1
