"""Readings of segments as columns: a row with a duration becomes single readings again.

The writer may append to a segment or drop it during a read.
"""

# ruff: noqa: S608 - names in these statements are constants; values are always bound

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from annotate.evidence import HEARTBEAT_NS, SIGNALS, Column, Gap, Lane, Process, ProcessList, Times, Trace, Values, Visibility
from gpuwatch.errors import StoreError
from gpuwatch.store import dense_power, files
from gpuwatch.store.compaction import POWER_BLOB_NS
from gpuwatch.store.database import Database
from gpuwatch.store.run import as_json
from gpuwatch.store.run_reader import DAMAGE
from gpuwatch.store.signal_columns import LANE_COLUMNS, key, quoted

_MS = 1_000_000


@dataclass(slots=True)
class Pieces:
    """The pieces of one GPU over one interval from several segments, joined at the end."""

    begin_ns: int
    end_ns: int
    lanes: dict[Lane, list[tuple[Times, dict[str, Values]]]] = field(default_factory=dict)
    power: list[tuple[Times, Values]] = field(default_factory=list)
    process_lists: list[ProcessList] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def read(self, db: Database, uuid: str) -> None:
        """Add the pieces of one segment.  Raises sqlite3.Error, ValueError."""
        row = db.execute("SELECT gpu FROM gpus WHERE uuid = ?", (uuid,)).fetchone()
        if row is None:
            return
        gpu: int = row[0]
        for lane in LANE_COLUMNS:
            self._lane(db, gpu, lane)
        self._process_list(db, gpu, uuid)
        for at_ns, count, samples in db.execute(
            "SELECT at_ns, count, samples FROM power WHERE gpu = ? AND id BETWEEN ? AND ? ORDER BY id",
            (gpu, key(self.begin_ns - POWER_BLOB_NS, gpu), key(self.end_ns, gpu)),
        ):
            self.power.append(dense_power.unpack(at_ns, count, samples))
        # A gap without an end is still open.
        query = "SELECT begin_ns, coalesce(end_ns, max(begin_ns, ?)), lane FROM gaps WHERE gpu = ?"
        for begin_ns, end_ns, lane in db.execute(query, (self.end_ns, gpu)):
            if begin_ns <= self.end_ns and end_ns >= self.begin_ns:
                self.gaps.append(Gap(begin_ns=begin_ns, end_ns=end_ns, lane=Lane(lane)))

    def trace(self, *, events: Sequence[Any], refresh_ns: Mapping[str, int]) -> Trace:
        power_at_ns, power_w = _joined(self.power)
        inside = (power_at_ns >= self.begin_ns) & (power_at_ns <= self.end_ns)
        return Trace(
            columns={name: column for name in SIGNALS if (column := self._column(name)) is not None},
            dense_power=Column(power_at_ns[inside], power_w[inside]),
            process_lists=tuple(sorted(self.process_lists, key=lambda process_list: process_list.at_ns)),
            events=tuple(events),
            gaps=tuple(sorted(self.gaps, key=lambda gap: gap.begin_ns)),
            refresh_ns=dict(refresh_ns),
        )

    def _lane(self, db: Database, gpu: int, lane: Lane) -> None:
        there = {row[1] for row in db.execute(f"PRAGMA table_info({lane.value})")}
        columns = [column for column in LANE_COLUMNS[lane] if column.name in there]
        if not columns:  # the segment is older than this lane
            return
        select = f"SELECT at_ns, stood_ms, {quoted(column.name for column in columns)} FROM {lane.value} WHERE gpu = ?"
        rows = _since(db, select, gpu, self.begin_ns, self.end_ns)
        if not rows:
            return
        index, times = _stood([row[0] for row in rows], [row[1] for row in rows], self.begin_ns, self.end_ns)
        values = np.array([row[2:] for row in rows], np.float64)[index]
        named = {column.signal: values[:, i] / column.scale for i, column in enumerate(columns)}
        self.lanes.setdefault(lane, []).append((times, named))

    def _process_list(self, db: Database, gpu: int, uuid: str) -> None:
        select = "SELECT at_ns, stood_ms, took_us, visibility, present FROM census WHERE gpu = ?"
        rows = _since(db, select, gpu, self.begin_ns, self.end_ns)
        if not rows:
            return
        seats = {row[4]: msgspec.json.decode(row[4]) for row in rows}
        known = _processes(db, sorted({seat[0] for present in seats.values() for seat in present}))
        lists: dict[str, tuple[Process, ...]] = {}
        index, times = _stood([row[0] for row in rows], [row[1] for row in rows], self.begin_ns, self.end_ns)
        for i, at_ns in zip(index.tolist(), times.tolist(), strict=True):
            _, _, took_us, visibility, present = rows[i]
            if present not in lists:
                lists[present] = tuple(
                    replace(known[number], memory_bytes=memory_bytes, utilization_ratio=ratio)
                    for number, memory_bytes, ratio in seats[present]
                )
            self.process_lists.append(
                ProcessList(
                    uuid=uuid, at_ns=at_ns, took_ns=took_us * 1000, processes=lists[present], visibility=Visibility(visibility)
                )
            )

    def _column(self, name: str) -> Column | None:
        """Join one signal's pieces, as ``Trace.of`` does, from all lanes that ever gave a value; None without a value."""
        given = []
        for pieces in self.lanes.values():
            of_lane = [(times, columns[name]) for times, columns in pieces if name in columns]
            if any(not np.isnan(values).all() for _, values in of_lane):
                given += of_lane
        if not given:
            return None
        at_ns, values = _joined(given)
        return Column(at_ns, values) if len(at_ns) else None


def _since(db: Database, select: str, gpu: int, begin_ns: int, end_ns: int) -> list[tuple[Any, ...]]:
    """Return the rows of an interval and the row before, which may last into the interval."""
    first, last = key(begin_ns, gpu), key(end_ns, gpu)
    before = db.execute(f"{select} AND id < ? ORDER BY id DESC LIMIT 1", (gpu, first)).fetchall()
    return before + db.execute(f"{select} AND id BETWEEN ? AND ? ORDER BY id", (gpu, first, last)).fetchall()


def _stood(at_ns: Sequence[int], stood_ms: Sequence[int], begin_ns: int, end_ns: int) -> tuple[Times, Times]:
    """Return row numbers and times inside the interval: each row at its start, at each heartbeat, and at its end."""
    begun, stood_ns = np.array(at_ns, np.int64), np.array(stood_ms, np.int64) * _MS
    # Start at the first heartbeat that can lie inside, because a row may last for a month.
    skipped = np.maximum(0, np.minimum(stood_ns, begin_ns - begun)) // HEARTBEAT_NS
    left_ns = np.maximum(0, np.minimum(stood_ns, end_ns - begun + HEARTBEAT_NS)) - skipped * HEARTBEAT_NS
    counts = 1 + -(-left_ns // HEARTBEAT_NS)
    index = np.repeat(np.arange(len(begun)), counts)
    nth = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts) + skipped[index]
    times = begun[index] + np.minimum(nth * HEARTBEAT_NS, stood_ns[index])
    inside = (times >= begin_ns) & (times <= end_ns)
    return index[inside], times[inside]


def _joined(pieces: Sequence[tuple[Times, Values]]) -> tuple[Times, Values]:
    """Join pieces in order of time, each time once."""
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    at_ns = np.concatenate([times for times, _ in pieces])
    values = np.concatenate([of_piece for _, of_piece in pieces])
    order = np.argsort(at_ns, kind="stable")
    at_ns, values = at_ns[order], values[order]
    first = np.concatenate((np.ones(min(1, len(at_ns)), bool), np.diff(at_ns) > 0))
    return at_ns[first], values[first]


def _processes(db: Database, numbers: Sequence[int]) -> dict[int, Process]:
    """Return the processes with these numbers, by number; a segment may hold a hundred thousand others."""
    sql = """SELECT process, pid, started_s, name, user, graphics, listed FROM processes
        WHERE process IN (SELECT value FROM json_each(?))"""
    return {
        number: Process(pid=pid, started_s=started_s, name=name, user=user, graphics=bool(graphics), listed=bool(listed))
        for number, pid, started_s, name, user, graphics, listed in db.execute(sql, (as_json(numbers),))
    }


_SLACK_NS = 60_000_000_000
_FIRST_ROW = "SELECT boot_id, begin_ns FROM segment"

_log = logging.getLogger("gpuwatch.store")
_T = TypeVar("_T")


class SegmentReader:
    """The segments of a folder by their time.  Methods raise StoreError, in one line."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._begins: dict[Path, tuple[str, int]] = {}

    def paths(self, boot_id: str, begin_ns: int, end_ns: int) -> Iterator[Path]:
        """Yield the segments of a boot that may hold readings of an interval, oldest first."""
        of_boot = []
        for path in sorted(self._state.glob(files.SEGMENTS)):
            if path not in self._begins:
                row = self._first_row(path)
                if row is None:
                    continue
                self._begins[path] = (row[0], row[1])
            if self._begins[path][0] == boot_id:
                of_boot.append((self._begins[path][1], path))
        for i, (segment_ns, path) in enumerate(of_boot):
            ends_ns = of_boot[i + 1][0] if i + 1 < len(of_boot) else None
            # A segment may hold readings made just before it began, and a power blob begins seconds earlier.
            if segment_ns - _SLACK_NS <= end_ns and (ends_ns is None or ends_ns + _SLACK_NS >= begin_ns):
                yield path

    def _first_row(self, path: Path) -> tuple[str, int] | None:
        """Return a segment's boot and start time, or None for a damaged or dropped one, whose readings are then missing."""
        try:
            row: tuple[str, int] | None = query_segment(path, lambda db: db.execute(_FIRST_ROW).fetchone())
        except StoreError as error:
            if error.__cause__ is None or not (files.is_broken(error.__cause__) or "no such" in str(error.__cause__)):
                raise
            _log.warning("%s; the segment is left out", error)
            return None
        return row


def query_segment(path: Path, query: Callable[[Database], _T]) -> _T | None:
    """Query one segment; return None if the writer dropped it meanwhile.

    Raises StoreError: when the segment cannot be read; the message has one line.
    """
    try:
        db = files.open_to_read(path)
    except StoreError:
        if not path.exists():
            return None
        raise
    try:
        return query(db)
    except DAMAGE as error:
        raise StoreError(f"{path}: expected readings, found: {error}") from error
    finally:
        db.conn.close()
