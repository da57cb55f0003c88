"""The read-only view of a store for any process: evidence, and the ownership of its processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from annotate.capsule.pack import unpack
from annotate.errors import CapsuleError
from annotate.evidence import Device, Event, Evidence, Host, Ownership, Process, ProcessList, Trace, WindowRecord, WorkRecord
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Run
from gpuwatch.store.read_traces import Pieces, SegmentReader, query_segment
from gpuwatch.store.run_reader import RunReader
from gpuwatch.store.signal_columns import device_from_row

LEAD_NS = 5_000_000_000
TAIL_NS = 500_000_000

_NOTHING_STORED = "no readings of this interval are stored"


class Reader(RunReader):
    """Queries of runs and of readings: traces, evidence, devices, clocks."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self._segments = SegmentReader(self.state)

    def evidence(self, run: Run, uuid: str) -> Evidence:
        """Return a run's evidence on one GPU: the packed form if it is stored, otherwise built from the readings.

        Raises StoreError: also for a damaged packed form.
        """
        packed = self.packed(run, uuid)
        if packed is not None:
            try:
                return unpack(packed)[0]
            except (CapsuleError, IndexError) as error:
                raise StoreError(
                    f"run {run.id}: expected readable evidence of {uuid}, found: {error or 'an empty capsule'}"
                ) from error
        end_ns = run.end_ns if run.end_ns is not None else run.begin_ns
        trace = self.trace(uuid, run.boot_id, run.begin_ns - LEAD_NS, end_ns + TAIL_NS)
        other, pauses = self._spans(run.id, "other"), self._spans(run.id, "pauses")
        ended_s = run.begun_wall_s + (end_ns - run.begin_ns) / 1e9
        found = Evidence(
            window=WindowRecord(begin_ns=run.begin_ns, end_ns=end_ns, label=run.label, pids=run.pids, program=run.program),
            device=self._device(uuid, run.boot_id, run.begin_ns),
            trace=with_ownership(trace, run.pids, ended_s),
            host=run.host or Host(boot_id=run.boot_id),
            declared=run.declared,
            timings=self._timings(run.id),
            absence=None if trace.columns else self._lost(uuid, run.boot_id, end_ns) or run.why or _NOTHING_STORED,
            overlapping=self.overlapping(run, uuid),
            other_work=other.as_other_work() if other is not None else None,
            pauses=pauses.as_pauses() if pauses is not None else (),
        )
        return replace(found, record=self._work_record(run, found))

    def trace(self, uuid: str, boot_id: str, begin_ns: int, end_ns: int) -> Trace:
        """Return every reading of one GPU between two times, both inclusive; empty if the GPU was not being read."""
        pieces = Pieces(begin_ns, end_ns)
        for path in self._segments.paths(boot_id, begin_ns, end_ns):
            query_segment(path, lambda db: pieces.read(db, uuid))
        events = [
            Event(uuid=uuid, at_ns=at_ns, kind=kind, value=value, text=text)
            for at_ns, kind, value, text in self._rows(
                "SELECT at_ns, kind, value, text FROM events WHERE uuid = ? AND boot_id = ? AND at_ns BETWEEN ? AND ?"
                " ORDER BY at_ns, id",
                (uuid, boot_id, begin_ns, end_ns),
            )
        ]
        refresh_ns = dict(self._rows("SELECT signal, refresh_ns FROM refresh WHERE uuid = ?", (uuid,)))
        return pieces.trace(events=events, refresh_ns=refresh_ns)

    def devices(self) -> tuple[Device, ...]:
        """Return the latest facts of every GPU ever watched, in the order in which the GPUs were first seen."""
        rows = self._dicts(
            "SELECT devices.* FROM devices JOIN (SELECT max(id) AS id, min(id) AS first FROM devices GROUP BY uuid) USING (id)"
            " ORDER BY first"
        )
        with self._as_store_error():
            return tuple(device_from_row(row) for row in rows)

    def device(self, uuid: str, *, boot_id: str | None = None, at_ns: int | None = None) -> Device:
        """Return a GPU's facts at a time of a boot, or its latest facts without a time.  Raises StoreError: for no such GPU."""
        device = self._device(uuid, boot_id, at_ns)
        if device is None:
            raise StoreError(
                f"{uuid}: expected a watched GPU, found only: {', '.join(d.uuid for d in self.devices()) or 'none'}"
            )
        return device

    def to_monotonic(self, wall_s: float) -> tuple[str, int]:
        """Return boot id and monotonic nanoseconds of a wall time, from the nearest interval with a recorded offset.

        Raises StoreError: for a store without any interval.
        """
        wall_ns = round(wall_s * 1e9)
        intervals = self._rows("SELECT boot_id, begin_ns, end_ns, wall_offset_ns FROM clocks ORDER BY rowid")
        if not intervals:
            raise StoreError(f"{self.state}: expected a store with readings, found an empty one; choose another --state")

        def distance_ns(interval: tuple[str, int, int, int]) -> int:
            _, begin_ns, end_ns, offset_ns = interval
            # A time between two intervals belongs to the earlier one, unless the later one is at most half as far away.
            return max(2 * (begin_ns + offset_ns - wall_ns), wall_ns - end_ns - offset_ns, 0)

        boot_id, _, _, offset_ns = min(reversed(intervals), key=distance_ns)
        return boot_id, wall_ns - offset_ns

    def _lost(self, uuid: str, boot_id: str, at_ns: int) -> str | None:
        """Return the reason for a GPU's loss, which may lie long before ``at_ns``, or None if the GPU was not lost then."""
        last = self._first(
            "SELECT kind, text FROM events WHERE uuid = ? AND boot_id = ? AND at_ns <= ? AND kind IN ('lost', 'back')"
            " ORDER BY at_ns DESC, id DESC LIMIT 1",
            (uuid, boot_id, at_ns),
        )
        return f"the GPU was lost: {last[1] or 'it stopped answering'}" if last and last[0] == "lost" else None

    def _work_record(self, run: Run, found: Evidence) -> WorkRecord | None:
        from annotate.work_record import work_key, work_record  # part of the judge, which a list of runs does not need

        key = work_key(found, run.policy)
        return work_record(self.recorded(run, key.digest)) if key is not None else None

    def _device(self, uuid: str, boot_id: str | None, at_ns: int | None) -> Device | None:
        rows = list(self._dicts("SELECT * FROM devices WHERE uuid = ? ORDER BY id", (uuid,)))
        if boot_id is not None and at_ns is not None and rows:
            then = [row for row in rows if row["boot_id"] == boot_id and row["since_ns"] <= at_ns]
            # Facts are written when they change: facts of an earlier boot may still hold, later facts did not hold yet.
            same_boot = next((i for i, row in enumerate(rows) if row["boot_id"] == boot_id), None)
            rows = then or (rows[: same_boot or 1] if same_boot is not None else rows)
        with self._as_store_error():
            return device_from_row(rows[-1]) if rows else None


def with_ownership(trace: Trace, pids: frozenset[int], ended_wall_s: float) -> Trace:
    """Return the trace with every process marked as own or foreign to a window with these PIDs.

    A process that started over a second after the window's end reused a PID, and is foreign.  Two processes with one PID
    during the window both count as own, so no process of the window is ever marked as foreign.  The stored data cannot
    separate the two: PIDs have no times, and a start time may be up to half a minute old (``Identities``).  Without
    PIDs, no process is marked.
    """
    if not pids:
        return trace

    def whose(process: Process) -> Process:
        reused = process.started_s is not None and process.started_s > ended_wall_s + 1.0
        own = process.pid in pids and not reused
        return replace(process, ownership=Ownership.OWN if own else Ownership.FOREIGN)

    lists: dict[int, tuple[Process, ...]] = {}  # one stored list is one object in many samples

    def seen(process_list: ProcessList) -> ProcessList:
        key = id(process_list.processes)
        if key not in lists:
            lists[key] = tuple(map(whose, process_list.processes))
        return replace(process_list, processes=lists[key])

    return replace(trace, process_lists=tuple(map(seen, trace.process_lists)))
