"""The last boot in a store: its time interval, its GPUs, events and windows."""

# ruff: noqa: S608 - names in these statements are constants; values are always bound

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from annotate.evidence import Event
from gpuwatch.errors import StoreError
from gpuwatch.store import files
from gpuwatch.store.database import Database
from gpuwatch.store.read_traces import query_segment
from gpuwatch.store.run_reader import LedgerConnection

_TABLES = ("fast", "slow", "edge", "census", "power")


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """One segment: the interval of its rows, its GPUs and its source."""

    begin_ns: int
    end_ns: int
    uuids: tuple[str, ...]
    source: str


class Boot(LedgerConnection):
    """The last boot in a store.  Every method raises a one-line StoreError when the store cannot be read."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        try:
            last = self._first("SELECT boot_id FROM clocks ORDER BY rowid DESC LIMIT 1")
        except StoreError:
            self.close()
            raise
        self.boot_id: str | None = last[0] if last else None
        self._closed: dict[Path, SegmentSpan | None] = {}

    def wall_offset_ns(self) -> int | None:
        """Return the latest offset from monotonic time to wall time in this boot, or None for a store without a boot."""
        row = self._first("SELECT wall_offset_ns FROM clocks WHERE boot_id = ? ORDER BY begin_ns DESC LIMIT 1", (self.boot_id,))
        return row[0] if row else None

    def segment_spans(self) -> list[SegmentSpan]:
        """Return the segments of this boot that hold rows, oldest first.  Only the newest segment is read at every call."""
        paths = sorted(self.state.glob(files.SEGMENTS))
        for path in paths[:-1]:
            if path not in self._closed:
                self._closed[path] = query_segment(path, self._span)
        found = [self._closed[path] for path in paths[:-1]] + [query_segment(path, self._span) for path in paths[-1:]]
        return [span for span in found if span is not None]

    def begun(self, at_ns: int, *, most: int) -> tuple[list[str], int]:
        """Return the ids of at most ``most`` windows that began by ``at_ns``, newest first, and the count of the others."""
        where = "FROM runs WHERE boot_id = ? AND begin_ns <= ?"
        values = (self.boot_id, at_ns)
        ids = [row[0] for row in self._rows(f"SELECT id {where} ORDER BY begin_ns DESC, id DESC LIMIT ?", (*values, most))]
        count: int = self._rows(f"SELECT count(*) {where}", values)[0][0]
        return ids, count - len(ids)

    def events(self, begin_ns: int, end_ns: int) -> tuple[Event, ...]:
        """Return the events of every GPU, oldest first, both ends included."""
        sql = "SELECT uuid, at_ns, kind, value, text FROM events WHERE boot_id = ? AND at_ns BETWEEN ? AND ? ORDER BY at_ns, id"
        return tuple(
            Event(uuid=uuid, at_ns=at_ns, kind=kind, value=value, text=text)
            for uuid, at_ns, kind, value, text in self._rows(sql, (self.boot_id, begin_ns, end_ns))
        )

    def lost(self, uuids: Sequence[str], at_ns: int) -> dict[str, str]:
        """Return the reason for each GPU of ``uuids`` that was lost at that time."""
        sql = (
            "SELECT kind, text FROM events WHERE boot_id = ? AND uuid = ? AND at_ns <= ? AND kind IN ('lost', 'back')"
            " ORDER BY at_ns DESC, id DESC LIMIT 1"
        )
        last = {uuid: self._first(sql, (self.boot_id, uuid, at_ns)) for uuid in uuids}
        return {uuid: row[1] or "it was lost" for uuid, row in last.items() if row and row[0] == "lost"}

    def _span(self, db: Database) -> SegmentSpan | None:
        """Return a segment's span, or None for a segment of another boot or without rows."""
        segment = db.execute("SELECT boot_id, source FROM segment").fetchone()
        if segment is None or segment[0] != self.boot_id:
            return None
        every = [ends for table in _TABLES if (ends := _ends(db, table)) is not None]
        uuids = tuple(row[0] for row in db.execute("SELECT uuid FROM gpus ORDER BY gpu"))
        # The first table with rows gives the start, because a power blob can begin before all other rows.
        return SegmentSpan(every[0][0], max(end for _, end in every), uuids, segment[1]) if every else None


def _ends(db: Database, table: str) -> tuple[int, int] | None:
    """Return the first row's time and the latest end of the last 64 rows by key; None for an empty table."""
    first = db.execute(f"SELECT at_ns FROM {table} ORDER BY id LIMIT 1").fetchone()
    if first is None:
        return None
    stood = "0" if table == "power" else "stood_ms"
    last = db.execute(f"SELECT at_ns + 1000000 * {stood} FROM {table} ORDER BY id DESC LIMIT 64").fetchall()
    return first[0], max(row[0] for row in last)
