"""The store as others see it: read-only, from any process, whether the writer lives or not."""

# ruff: noqa: S608 - the names in these statements are ours; values are always bound

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from annotate.capsule.pack import unpack
from annotate.errors import CapsuleError
from annotate.evidence import Device, Event, Evidence, Host, Ownership, Process, ProcessList, Timings, Trace, WindowRecord
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Run
from gpuwatch.store import files, schema
from gpuwatch.store.read_traces import Pieces
from gpuwatch.store.run import BADNESS, UNFINISHED, Ended, from_row
from gpuwatch.store.signal_columns import device_from_row

LEAD_NS = 5_000_000_000
TAIL_NS = 500_000_000
SHORTEST_PREFIX = 4
_SLACK_NS = 60_000_000_000
_FIRST_ROW = "SELECT boot_id, begin_ns FROM segment"

_log = logging.getLogger("gpuwatch.store")
_T = TypeVar("_T")

# What a torn file can make of a row: nothing SQLite can read, or values that are none of ours.
_DAMAGE = (
    sqlite3.Error, zlib.error, msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError,
    RecursionError,  # JSON nested deeper than Python goes
)  # fmt: skip

_NOTHING_KEPT = "no readings of this interval are kept"


class Reader:
    """Every method raises StoreError, in one line, where the store cannot say it."""

    def __init__(self, state: Path) -> None:
        self._state = Path(state)
        path = self._state / files.DATABASE
        self._db = files.open_to_read(path)
        self._begins: dict[Path, tuple[str, int]] = {}
        self.left_out: dict[str, str] = {}  # runs that no list can show because they cannot be read, and why
        try:
            schema.refuse_newer(self._db, path)
            if "runs" not in self._db.table_names():
                raise StoreError(f"{path}: expected a gpuwatch store, found another database")
        except (StoreError, *files.REFUSALS) as error:
            self._db.conn.close()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{path}: expected a readable gpuwatch database, found: {error}") from error

    @property
    def state(self) -> Path:
        """The folder it reads: another process opens its own."""
        return self._state

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.conn.close()

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
        """Runs that began in an interval, the newest first; with ``worst_first``, by status and then the newest."""
        wheres: list[tuple[str, list[Any]]] = [
            (sql, [value])
            for sql, value in (("begun_wall_s >= ?", since_wall_s), ("begun_wall_s <= ?", until_wall_s), ("label = ?", label))
            if value is not None
        ]
        if len(status) == 1:
            wheres.append(("status = ?", list(status)))  # of several, SQLite cannot use the index for the order
        elif status:
            wheres.append((f"status IN ({', '.join('?' * len(status))})", list(status)))
        if status and worst_first:  # says the same again by what the rows are in order of, or all of them would be sorted
            badness = sorted({BADNESS.get(each, -1) for each in status})
            wheres.append((f"badness IN ({', '.join('?' * len(badness))})", badness))
        where = " AND ".join(sql for sql, _ in wheres) or "1"
        values = [value for _, of_one in wheres for value in of_one]
        order = "badness DESC, begun_wall_s DESC" if worst_first else "begun_wall_s DESC"
        sql = f"SELECT * FROM runs WHERE {where} ORDER BY {order}, id DESC LIMIT ?"
        return self._runs(sql, [*values, -1 if limit is None else limit])

    def ended(self, *, since_wall_s: float | None = None) -> list[Ended]:
        """What is over and has its verdict of record, oldest first, without reading any: a million take seconds."""
        sql = f"""SELECT id, boot_id, begun_wall_s, CASE WHEN json_valid(host) THEN json_extract(host, '$.hostname') END FROM runs
            WHERE begun_wall_s >= ? AND status NOT IN ({", ".join("?" * len(UNFINISHED))}) ORDER BY begun_wall_s, id"""
        return [Ended(*row) for row in self._rows(sql, [since_wall_s or 0.0, *UNFINISHED])]

    def named(self, ids: Sequence[str]) -> list[Run]:
        """The runs of these ids, in the order given; who is not there is left out."""
        runs: dict[str, Run] = {}
        for i in range(0, len(ids), 500):
            some = list(ids[i : i + 500])
            sql = f"SELECT * FROM runs WHERE id IN ({', '.join('?' * len(some))})"
            runs |= {run.id: run for run in self._runs(sql, some)}
        return [runs[run_id] for run_id in ids if run_id in runs]

    def run(self, id_prefix: str) -> Run:
        """The run whose id begins so; four characters at least."""
        if len(id_prefix) < SHORTEST_PREFIX:
            raise StoreError(f"run: expected at least {SHORTEST_PREFIX} characters of its id, found {id_prefix!r}")
        sql = "SELECT * FROM runs WHERE id >= ? AND id < ? LIMIT 11"
        unreadable: dict[str, str] = {}
        found = self._readable(sql, [id_prefix, f"{id_prefix}\U0010ffff"], unreadable)
        if id_prefix in unreadable or (unreadable and not found):
            raise StoreError(unreadable.get(id_prefix) or next(iter(unreadable.values())))
        exact = [run for run in found if run.id == id_prefix]
        if len(found) != 1 and not exact:
            if not found:
                raise StoreError(f"run {id_prefix}: expected one in {self._state}, found none; list them with: gpuwatch audit")
            some = ", ".join(run.id for run in found[:3])
            raise StoreError(f"run {id_prefix}: expected one, found {len(found)} that begin so: {some}")
        return (exact or found)[0]

    def packed(self, run: Run, uuid: str) -> bytes | None:
        """The evidence as packed when the run was judged, byte for byte; None where that was not kept."""
        row = self._first("SELECT capsule FROM evidence WHERE run = ? AND uuid = ?", (run.id, uuid))
        return None if row is None else bytes(row[0])

    def signatures(self, run: Run) -> dict[int, bytes]:
        """What the daemon signed of a run, by the verdict's position; nothing in a store of an older version."""
        if "signatures" not in self._db.table_names():
            return {}
        return dict(self._rows("SELECT position, signature FROM signatures WHERE run = ?", (run.id,)))

    def evidence(self, run: Run, uuid: str) -> Evidence:
        """What is known of a run on one GPU: as packed when it was judged, else put together from the readings."""
        packed = self.packed(run, uuid)
        if packed is not None:
            try:
                return unpack(packed)[0]
            except (CapsuleError, IndexError) as error:
                raise StoreError(f"run {run.id}: its packed evidence of {uuid}: {error or 'empty'}") from error
        end_ns = run.end_ns if run.end_ns is not None else run.begin_ns
        trace = self.trace(uuid, run.boot_id, run.begin_ns - LEAD_NS, end_ns + TAIL_NS)
        ended_s = run.begun_wall_s + (end_ns - run.begin_ns) / 1e9
        return Evidence(
            window=WindowRecord(begin_ns=run.begin_ns, end_ns=end_ns, label=run.label, pids=run.pids),
            device=self._device(uuid, run.boot_id, run.begin_ns),
            trace=owned(trace, run.pids, ended_s),
            host=run.host or Host(boot_id=run.boot_id),
            told=run.told,
            timings=self._timings(run.id),
            absence=None if trace.columns else self._lost(uuid, run.boot_id, end_ns) or run.why or _NOTHING_KEPT,
        )

    def trace(self, uuid: str, boot_id: str, begin_ns: int, end_ns: int) -> Trace:
        """Every reading of one GPU from begin to end, both inclusive; empty if it was not being read."""
        pieces = Pieces(begin_ns, end_ns)
        for path in self._segments(boot_id, begin_ns, end_ns):
            self._in_segment(path, lambda db: pieces.read(db, uuid), None)
        events = [
            Event(uuid=uuid, at_ns=at_ns, kind=kind, value=value, text=text)
            for at_ns, kind, value, text in self._rows(
                "SELECT at_ns, kind, value, text FROM events WHERE uuid = ? AND boot_id = ? AND at_ns BETWEEN ? AND ?"
                " ORDER BY at_ns, id", (uuid, boot_id, begin_ns, end_ns),
            )
        ]  # fmt: skip
        refresh_ns = dict(self._rows("SELECT signal, refresh_ns FROM refresh WHERE uuid = ?", (uuid,)))
        return pieces.trace(events=events, refresh_ns=refresh_ns)

    def _lost(self, uuid: str, boot_id: str, at_ns: int) -> str | None:
        """Why a GPU of which nothing was read was not there: it may have been lost long before."""
        last = self._first(
            "SELECT kind, text FROM events WHERE uuid = ? AND boot_id = ? AND at_ns <= ? AND kind IN ('lost', 'back')"
            " ORDER BY at_ns DESC, id DESC LIMIT 1", (uuid, boot_id, at_ns),
        )  # fmt: skip
        return f"the GPU was lost: {last[1] or 'it stopped answering'}" if last and last[0] == "lost" else None

    def devices(self) -> tuple[Device, ...]:
        """Every GPU ever watched, as it was last, in the order they were first seen."""
        latest = "SELECT max(id) AS id, min(id) AS first FROM devices GROUP BY uuid"
        rows = self._dicts(f"SELECT devices.* FROM devices JOIN ({latest}) USING (id) ORDER BY first")
        with self._told():
            return tuple(device_from_row(row) for row in rows)

    def device(self, uuid: str, *, boot_id: str | None = None, at_ns: int | None = None) -> Device:
        """A GPU as it was at a time of a boot; as it was last, if none is given."""
        device = self._device(uuid, boot_id, at_ns)
        if device is None:
            raise StoreError(
                f"{uuid}: expected a GPU that was watched; known: {', '.join(d.uuid for d in self.devices()) or 'none'}"
            )
        return device

    def to_monotonic(self, wall_s: float) -> tuple[str, int]:
        """Boot id and monotonic nanoseconds of a wall time, by the nearest stretch in which both were known."""
        wall_ns = round(wall_s * 1e9)
        stretches = self._rows("SELECT boot_id, begin_ns, end_ns, wall_offset_ns FROM clocks ORDER BY rowid", ())
        if not stretches:
            raise StoreError(f"{self._state}: expected a store in which something was watched, found an empty one")

        def distance_ns(stretch: tuple[str, int, int, int]) -> int:
            _, begin_ns, end_ns, offset_ns = stretch
            # What follows a stretch belongs to it rather than to the next, which began later.
            return max(2 * (begin_ns + offset_ns - wall_ns), wall_ns - end_ns - offset_ns, 0)

        boot_id, _, _, offset_ns = min(reversed(stretches), key=distance_ns)
        return boot_id, wall_ns - offset_ns

    # The pieces

    def _device(self, uuid: str, boot_id: str | None, at_ns: int | None) -> Device | None:
        rows = list(self._dicts("SELECT * FROM devices WHERE uuid = ? ORDER BY id", (uuid,)))
        if boot_id is not None and at_ns is not None and rows:
            then = [row for row in rows if row["boot_id"] == boot_id and row["since_ns"] <= at_ns]
            # Facts are written when they change, so those of an earlier boot may still have held; later ones did not.
            same_boot = next((i for i, row in enumerate(rows) if row["boot_id"] == boot_id), None)
            rows = then or (rows[: same_boot or 1] if same_boot is not None else rows)
        with self._told():
            return device_from_row(rows[-1]) if rows else None

    def _timings(self, run_id: str) -> Timings | None:
        row = next(iter(self._dicts("SELECT * FROM timings WHERE run = ?", [run_id])), None)
        if row is None:
            return None
        clock = row.get("sm_clock_mhz")  # a store of the first version has none
        with self._told():
            return Timings(
                np.frombuffer(row["at_ns"], "<i8").copy(),
                np.frombuffer(row["took_s"], "<f8").copy(),
                None if clock is None else np.frombuffer(clock, "<f4").astype(np.float64),
                row.get("calls_count") or 1,
            )

    def _runs(self, sql: str, values: list[Any]) -> list[Run]:
        """The runs that can be read; the others are noted in ``left_out``."""
        return self._readable(sql, values, self.left_out)

    def _readable(self, sql: str, values: list[Any], unreadable: dict[str, str]) -> list[Run]:
        """The runs that can be read; ``unreadable`` is given the others, with the reasons."""
        rows = list(self._dicts(sql, values))
        packed: dict[str, list[bytes]] = {}
        for i in range(0, len(rows), 500):  # SQLite allows 999 values at least
            ids = [row["id"] for row in rows[i : i + 500]]
            marks = ", ".join("?" * len(ids))
            sql = f"SELECT run, verdict FROM verdicts WHERE run IN ({marks}) ORDER BY run, position"
            for run_id, verdict in self._rows(sql, ids):
                packed.setdefault(run_id, []).append(verdict)
        runs = []
        for row in rows:
            try:
                verdicts = [msgspec.json.decode(zlib.decompress(each)) for each in packed.get(row["id"], ())]
                runs.append(from_row(row, tuple(verdicts)))
            except _DAMAGE as error:
                path = self._state / files.DATABASE
                unreadable[str(row["id"])] = f"{path}: run {row['id']}: expected a readable window, found: {error}"
        return runs

    def _segments(self, boot_id: str, begin_ns: int, end_ns: int) -> Iterator[Path]:
        """Segments of a boot that may hold readings of an interval, oldest first."""
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
            # What was read just before a segment began may lie in it, and a blob of power begins seconds earlier.
            if segment_ns - _SLACK_NS <= end_ns and (ends_ns is None or ends_ns + _SLACK_NS >= begin_ns):
                yield path

    def _first_row(self, path: Path) -> tuple[str, int] | None:
        """A segment's boot and beginning; None for a damaged one, whose readings are missed where they are asked for."""
        try:
            row: tuple[str, int] | None = self._in_segment(path, lambda db: db.execute(_FIRST_ROW).fetchone(), None)
        except StoreError as error:
            if error.__cause__ is None or not (files.is_broken(error.__cause__) or "no such" in str(error.__cause__)):
                raise
            _log.warning("%s; it is left out", error)
            return None
        return row

    def _in_segment(self, path: Path, ask: Callable[[Any], _T], absent: _T) -> _T:
        """Ask one segment; ``absent`` if it was dropped meanwhile or is of a newer schema's making."""
        try:
            db = files.open_to_read(path)
        except StoreError:
            if not path.exists():
                return absent
            raise
        try:
            return ask(db)
        except _DAMAGE as error:
            raise StoreError(f"{path}: expected readings, found: {error}") from error
        finally:
            db.conn.close()

    def _first(self, sql: str, values: Iterable[Any]) -> tuple[Any, ...] | None:
        return next(iter(self._rows(sql, values)), None)

    def _rows(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        with self._told():
            return self._db.execute(sql, list(values)).fetchall()

    def _dicts(self, sql: str, values: Iterable[Any] = ()) -> list[dict[str, Any]]:
        with self._told():
            return list(self._db.query(sql, list(values)))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            raise StoreError(
                f"{self._state / files.DATABASE}: expected a readable gpuwatch database, found: {error}"
            ) from error


def owned(trace: Trace, pids: frozenset[int], ended_wall_s: float) -> Trace:
    """The same trace, seen from the window of these processes: whoever is named and not of its tree is foreign.

    A process that started after the window ended only reused a PID.  One that reused the PID of a process of the tree while
    the window was open counts as own: of two that had one PID, what is kept does not tell which was of the tree.  The first
    may have been a stranger, whose PID a child of the tree was given, and a tree that starts many may have been given it
    twice; PIDs are kept without the moments at which they were found to be of the tree, and a start time may be that of who
    had the PID up to half a minute before (``host.Identities``).  No process of the window's own is ever called foreign for
    it.  Without PIDs nothing can be told.
    """
    if not pids:
        return trace

    def whose(process: Process) -> Process:
        reused = process.started_s is not None and process.started_s > ended_wall_s + 1.0
        own = process.pid in pids and not reused
        return replace(process, ownership=Ownership.OWN if own else Ownership.FOREIGN)

    lists: dict[int, tuple[Process, ...]] = {}  # a list that stood is one object in many censuses

    def seen(census: ProcessList) -> ProcessList:
        key = id(census.processes)
        if key not in lists:
            lists[key] = tuple(map(whose, census.processes))
        return replace(census, processes=lists[key])

    return replace(trace, censuses=tuple(map(seen, trace.censuses)))
