"""Reading a store from any process, while it is written or long after: runs, devices, and evidence of any interval."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from annotate.evidence import (
    Census,
    Column,
    Device,
    Event,
    Evidence,
    Gap,
    Host,
    Lane,
    Ownership,
    Process,
    Trace,
    Visibility,
    Window,
)
from gpuwatch import capsule
from gpuwatch.errors import StoreError
from gpuwatch.store import dense, files
from gpuwatch.store.columns import TABLES, key, key_at_ns, scale, stored_name
from gpuwatch.store.run import Run, from_row
from gpuwatch.store.schema import VERSION

LEAD_NS = 5_000_000_000
TAIL_NS = 500_000_000
_SLOW_REACH_NS = 12_000_000_000  # the slow lane is asked every ten seconds while no window is open
_PREFIX_LENGTH = 4


class Reader:
    """A store opened for reading only.  Close it, or use it as a context manager.

    Raises StoreError, in one line, if there is no store, or one of a newer version, or a damaged one.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        path = state / files.PERMANENT
        if not path.exists():
            raise StoreError(f"{state}: expected a store, found none; the daemon makes it: gpuwatch daemon, or gpuwatch run -- CMD")
        newer = files.newer_version(path, VERSION)
        if newer is not None:
            raise StoreError(f"{path}: expected a store of version {VERSION} or older, found {newer}; upgrade gpuwatch")
        self._segments: dict[Path, sqlite3.Connection] = {}
        self._db = _read_only(path)
        try:
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise StoreError(f"{path}: expected a database, found damaged data ({error}); the daemon sets it aside at its start") from error
        if version < VERSION:
            self._db.close()
            raise StoreError(f"{path}: expected version {VERSION}, found {version}; start the daemon once to bring it up to date")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in (self._db, *self._segments.values()):
            connection.close()
        self._segments.clear()

    # Runs

    def runs(
        self,
        *,
        since_wall_s: float | None = None,
        until_wall_s: float | None = None,
        label: str | None = None,
        status: Collection[str] = (),
        limit: int | None = None,
        worst_first: bool = False,
    ) -> list[Run]:
        """Runs, newest first, or worst first (and newest within one status)."""
        where, values = ["1"], []
        for condition, value in (("begun_wall_s >= ?", since_wall_s), ("begun_wall_s <= ?", until_wall_s), ("label = ?", label)):
            if value is not None:
                where.append(condition)
                values.append(value)
        if status:
            where.append(f"status IN ({', '.join('?' * len(status))})")
            values += status
        badness = "CASE status WHEN 'rejected' THEN 0 WHEN 'flagged' THEN 1 WHEN 'unproven' THEN 2 WHEN 'valid' THEN 4 ELSE 3 END, "
        sql = (
            f"SELECT * FROM runs WHERE {' AND '.join(where)} "  # noqa: S608 - conditions are ours, values are bound
            f"ORDER BY {badness if worst_first else ''} begun_wall_s DESC, id DESC LIMIT ?"
        )
        return [from_row(row) for row in self._rows(self._db, sql, [*values, -1 if limit is None else limit])]

    def run(self, id_prefix: str) -> Run:
        """The one run whose id begins so.  Raises StoreError if there is none, or several."""
        if len(id_prefix) < _PREFIX_LENGTH:
            raise StoreError(f"run {id_prefix!r}: expected at least {_PREFIX_LENGTH} characters of its id")
        escaped = id_prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        found = list(self._rows(self._db, "SELECT * FROM runs WHERE id LIKE ? ESCAPE '\\' LIMIT 9", [f"{escaped}%"]))
        exact = [row for row in found if row["id"] == id_prefix]
        if len(found) == 1 or exact:
            return from_row((exact or found)[0])
        if not found:
            raise StoreError(f"run {id_prefix!r}: expected the beginning of a stored run's id, found none; gpuwatch audit lists them")
        raise StoreError(f"run {id_prefix!r}: expected one run, found {', '.join(row['id'] for row in found)}; give more of its id")

    def evidence(self, run: Run, uuid: str) -> Evidence:
        """What a run was judged by: its own packed evidence, else assembled from the readings while they are there."""
        row = self._db.execute("SELECT capsule FROM evidence WHERE run = ? AND uuid = ?", (run.id, uuid)).fetchone()
        if row is not None:
            (packed,) = capsule.unpack(row[0])
            return packed
        end_ns = run.end_ns if run.end_ns is not None else run.begin_ns
        evidence = self.interval(uuid, run.boot_id, run.begin_ns, end_ns, pids=run.pids, label=run.label)
        return replace(evidence, host=run.host or Host(boot_id=run.boot_id), told=run.told)

    # Any interval

    def interval(
        self, uuid: str, boot_id: str, begin_ns: int, end_ns: int, *, pids: frozenset[int] = frozenset(), label: str | None = None
    ) -> Evidence:
        """Evidence of an interval nobody need have wrapped; ``pids`` are the processes that are its own."""
        device = self._device(uuid, boot_id, end_ns)
        trace = self.trace(uuid, boot_id, begin_ns - LEAD_NS, end_ns + TAIL_NS, pids=pids)
        return Evidence(
            window=Window(begin_ns=begin_ns, end_ns=end_ns, label=label, pids=pids),
            device=device,
            trace=trace,
            host=Host(boot_id=boot_id),
            absence=None if trace.columns else f"the store has no reading of {uuid} in this interval",
        )

    def trace(self, uuid: str, boot_id: str, begin_ns: int, end_ns: int, *, pids: frozenset[int] = frozenset()) -> Trace:
        """Everything read of one GPU between two times, and the slow rows in force at the first."""
        parts = [self._part(segment, uuid, begin_ns, end_ns, pids) for segment in self._holding(boot_id, begin_ns, end_ns)]
        refresh = self._rows(self._db, "SELECT signal, refresh_ns FROM refresh WHERE uuid = ?", [uuid])
        events = self._rows(
            self._db,
            "SELECT at_ns, kind, value, text FROM events WHERE uuid = ? AND boot_id = ? AND at_ns BETWEEN ? AND ? ORDER BY at_ns",
            [uuid, boot_id, begin_ns, end_ns],
        )
        return Trace(
            columns=_joined([part.columns for part in parts]),
            dense_power=_concatenated([part.dense_power for part in parts]),
            censuses=tuple(census for part in parts for census in part.censuses),
            events=tuple(Event(uuid=uuid, at_ns=r["at_ns"], kind=r["kind"], value=r["value"], text=r["text"]) for r in events),
            gaps=tuple(gap for part in parts for gap in part.gaps),
            refresh_ns={row["signal"]: row["refresh_ns"] for row in refresh},
        )

    def devices(self) -> tuple[Device, ...]:
        """Every GPU ever seen, as it was last."""
        rows = self._rows(self._db, "SELECT *, max(at_ns) FROM devices GROUP BY uuid ORDER BY min(rowid)", [])
        return tuple(_device(row) for row in rows)

    def to_monotonic(self, wall_s: float) -> tuple[str, int]:
        """The boot and its monotonic time at a wall time, by the nearest pair of clocks.  Raises StoreError."""
        row = self._db.execute(
            "SELECT boot_id, monotonic_ns, wall_ns FROM clocks ORDER BY abs(wall_ns - ?) LIMIT 1", (int(wall_s * 1e9),)
        ).fetchone()
        if row is None:
            raise StoreError(f"{self._state}: nothing was recorded here yet")
        boot_id, monotonic_ns, wall_ns = row
        return boot_id, monotonic_ns + int(wall_s * 1e9) - wall_ns

    def to_wall_s(self, boot_id: str, at_ns: int) -> float | None:
        """Wall time of a monotonic time of a boot, None if that boot is not known."""
        row = self._db.execute(
            "SELECT monotonic_ns, wall_ns FROM clocks WHERE boot_id = ? ORDER BY abs(monotonic_ns - ?) LIMIT 1", (boot_id, at_ns)
        ).fetchone()
        return (at_ns - row[0] + row[1]) / 1e9 if row else None

    # The pieces

    def _device(self, uuid: str, boot_id: str, at_ns: int) -> Device | None:
        for row in self._rows(
            self._db,
            "SELECT * FROM devices WHERE uuid = ? ORDER BY boot_id = ? DESC, at_ns <= ? DESC, at_ns DESC LIMIT 1",
            [uuid, boot_id, at_ns],
        ):
            return _device(row)
        return None

    def _holding(self, boot_id: str, begin_ns: int, end_ns: int) -> Iterator[sqlite3.Connection]:
        """The segments of a boot that may hold rows of an interval, oldest first."""
        for path in files.segments(self._state):
            connection = self._segments.get(path)
            try:
                if connection is None:
                    connection = self._segments[path] = _read_only(path)
                if connection.execute("SELECT boot_id FROM segment").fetchone() != (boot_id,):
                    continue
                first, last = connection.execute("SELECT min(key), max(key) FROM fast").fetchone()
            except sqlite3.DatabaseError:
                continue  # dropped by retention between the listing and now, or damaged: the daemon sets it aside
            if first is None or (key_at_ns(first) <= end_ns and key_at_ns(last) >= begin_ns - LEAD_NS):
                yield connection

    def _part(self, db: sqlite3.Connection, uuid: str, begin_ns: int, end_ns: int, pids: frozenset[int]) -> Trace:
        found = db.execute("SELECT gpu FROM gpus WHERE uuid = ?", (uuid,)).fetchone()
        if found is None:
            return Trace()
        gpu = found[0]
        lanes = []
        for lane in TABLES:
            reach_ns = _SLOW_REACH_NS if lane is Lane.SLOW else 0
            lanes.append(_lane(db, lane, gpu, begin_ns - reach_ns, end_ns))
        lists: dict[int, tuple[Process, ...]] = {}
        censuses = []
        for row_key, took_us, index, visible in _in_time(db, "censuses", "key, took_us, list, visibility", gpu, begin_ns, end_ns):
            if index not in lists:
                lists[index] = _processes(db, index, pids)
            censuses.append(
                Census(uuid=uuid, at_ns=key_at_ns(row_key), took_ns=took_us * 1000, processes=lists[index], visibility=Visibility(visible))
            )
        times: list[int] = []
        watts: list[float] = []
        for (record,) in _in_time(db, "power", "record", gpu, begin_ns, end_ns):
            with contextlib.suppress(ValueError):
                at_ns, power_w = dense.unpack(record)
                times += at_ns
                watts += power_w
        gaps = db.execute(
            "SELECT begin_ns, end_ns, lane FROM gaps WHERE gpu = ? AND end_ns >= ? AND begin_ns <= ? ORDER BY begin_ns",
            (gpu, begin_ns, end_ns),
        )
        return Trace(
            columns=_joined(lanes),
            dense_power=Column(np.array(times, np.int64), np.array(watts, np.float64)),
            censuses=tuple(censuses),
            gaps=tuple(Gap(begin_ns=b, end_ns=e, lane=Lane(lane)) for b, e, lane in gaps),
        )

    @staticmethod
    def _rows(db: sqlite3.Connection, sql: str, values: Sequence[object]) -> Iterator[Mapping[str, Any]]:
        cursor = db.execute(sql, tuple(values))
        names = [column[0] for column in cursor.description]
        return (dict(zip(names, row, strict=True)) for row in cursor)


def _read_only(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    return connection


def _in_time(db: sqlite3.Connection, table: str, names: str, gpu: int, begin_ns: int, end_ns: int) -> list[tuple[Any, ...]]:
    return db.execute(
        f"SELECT {names} FROM {table} WHERE key BETWEEN ? AND ? AND key & 63 = ? ORDER BY key",  # noqa: S608 - our own names
        (key(begin_ns, 0), key(end_ns, 63), gpu),
    ).fetchall()


def _lane(db: sqlite3.Connection, lane: Lane, gpu: int, begin_ns: int, end_ns: int) -> dict[str, Column]:
    there = {row[1] for row in db.execute(f"PRAGMA table_info({lane.value})")}
    names = [name for name in TABLES[lane] if stored_name(name) in there]
    rows = _in_time(db, lane.value, ", ".join(("key", *map(stored_name, names))), gpu, begin_ns, end_ns)
    if not rows:
        return {}
    at_ns = np.array([key_at_ns(row[0]) for row in rows], np.int64)
    columns = {}
    for position, name in enumerate(names, start=1):
        values = np.array([row[position] for row in rows], np.float64) / scale(name)
        if not np.isnan(values).all():
            columns[name] = Column(at_ns, values)
    return columns


def _joined(parts: Sequence[Mapping[str, Column]]) -> dict[str, Column]:
    """Columns of several lanes or segments as one each, in order of time; a lane that did not ask a signal adds nothing."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _concatenated([_observed(part[name]) for part in parts if name in part]) for name in names}


def _observed(column: Column) -> Column:
    seen = ~np.isnan(column.values)
    return column if seen.all() else Column(column.at_ns[seen], column.values[seen])


def _concatenated(columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    at_ns = np.concatenate([column.at_ns for column in columns] or [np.empty(0, np.int64)])
    values = np.concatenate([column.values for column in columns] or [np.empty(0, np.float64)])
    order = np.argsort(at_ns, kind="stable")
    return Column(at_ns[order], values[order])


def _processes(db: sqlite3.Connection, index: int, pids: frozenset[int]) -> tuple[Process, ...]:
    row = db.execute("SELECT processes FROM process_lists WHERE id = ?", (index,)).fetchone()
    listed = json.loads(row[0]) if row else []
    return tuple(
        Process(**process, ownership=Ownership.OWN if process["pid"] in pids else Ownership.FOREIGN) for process in listed
    )


def _device(row: Mapping[str, Any]) -> Device:
    values = {field.name: row[field.name] for field in fields(Device) if field.name in row}
    modes = {name: None if values[name] is None else bool(values[name]) for name in values if _is_flag(name)}
    return Device(**{**values, **modes})


def _is_flag(name: str) -> bool:
    return next(field for field in fields(Device) if field.name == name).type in ("bool", "bool | None")
