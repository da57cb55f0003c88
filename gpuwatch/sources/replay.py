"""A recording played as a Source, at any speed."""

import math
import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from annotate.evidence import (
    HEARTBEAT_NS,
    SIGNALS,
    Device,
    Event,
    Evidence,
    Lane,
    Ownership,
    PowerRecord,
    ProcessList,
    Reading,
    Trace,
    Visibility,
)
from gpuwatch.errors import DeviceLostError, SourceGoneError, UsageError
from gpuwatch.interfaces import Clock
from gpuwatch.sources import recordings

ENDED = "the recording ended"
_SLOW_FRESH_NS = 11_000_000_000  # longer than ten seconds, the slow lane's period without a window and without rest

# Types of a reading's fields other than float: columns hold every signal as float.
_TYPES: dict[str, type] = {
    f.name: bool if "bool" in str(f.type) else int for f in fields(Reading) if "int" in str(f.type) or "bool" in str(f.type)
}


class Replay:
    """The recorded GPUs.  The recording starts when the object is built, and advances by ``speed`` seconds per second.

    ``read`` returns each signal's last value at the current recording time, or None if that value is missing or stale.
    After the last reading of a GPU, that GPU is lost.

    Raises UsageError: when the recording cannot be read or holds no reading, or ``speed`` is not finite and above 0.
    """

    def __init__(self, path: str | Path, clock: Clock, *, speed: float = 1.0) -> None:
        if not (math.isfinite(speed) and speed > 0):
            raise UsageError(f"replay speed: expected a number above 0, found {speed}")
        self._clock, self._speed = clock, speed
        self.name = f"replay:{path}"
        self._gpus = {evidence.device.uuid: evidence for evidence in recordings.whole(path) if evidence.device}
        if not any(evidence.trace.columns for evidence in self._gpus.values()):
            raise UsageError(f"{path}: expected readings to replay, found none")
        self._begin_ns = min(evidence.window.begin_ns for evidence in self._gpus.values())
        self._start_ns = clock.now_ns()
        self.simulated = any(evidence.device.simulated for evidence in self._gpus.values() if evidence.device)
        self._closed = threading.Event()
        self._returned_ns = self._begin_ns - 1
        self._record_until_ns: dict[str, int] = {}

    def devices(self) -> tuple[Device, ...]:
        then_ns = self._then_ns()
        return tuple(e.device for e in self._gpus.values() if e.device and then_ns <= e.window.end_ns)

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        if unknown := set(names) - SIGNALS.keys():
            raise ValueError(f"no such signal: {', '.join(sorted(unknown))}")
        evidence, then_ns = self._at(uuid)
        values: dict[str, Any] = {}  # with the types of the fields
        for name in names:
            value = _value(evidence.trace, name, then_ns)
            if value is not None:
                values[name] = _TYPES.get(name, float)(value)
        return Reading(uuid=uuid, lane=lane, at_ns=self._now_ns(then_ns), took_ns=0, **values)

    def read_process_list(self, uuid: str, *, utilization: bool = False) -> ProcessList:
        evidence, then_ns = self._at(uuid)
        at_ns = self._now_ns(then_ns)
        known = [process_list for process_list in evidence.trace.process_lists if process_list.at_ns <= then_ns]
        if not known or _in_gap(evidence.trace, Lane.PROCESSES, then_ns):
            return ProcessList(uuid=uuid, at_ns=at_ns, took_ns=0, processes=(), visibility=Visibility.UNKNOWN)
        processes = known[-1].processes
        if utilization:  # the last list that includes utilisation
            busy = [
                process_list for process_list in known if any(p.utilization_ratio is not None for p in process_list.processes)
            ]
            processes = busy[-1].processes if busy else processes
        processes = tuple(replace(process, ownership=Ownership.UNKNOWN) for process in processes)
        return replace(known[-1], at_ns=at_ns, took_ns=0, processes=processes)

    def power_record(self, uuid: str) -> PowerRecord:
        evidence, then_ns = self._at(uuid)
        dense = evidence.trace.dense_power
        since_ns = self._record_until_ns.get(uuid, self._begin_ns - 1)
        rows = slice(*np.searchsorted(dense.at_ns, [since_ns, then_ns], side="right"))
        self._record_until_ns[uuid] = then_ns
        return PowerRecord(
            uuid=uuid,
            at_ns=self._now_ns(then_ns),
            took_ns=0,
            sample_at_ns=tuple(self._now_ns(int(at_ns)) for at_ns in dense.at_ns[rows]),
            sample_w=tuple(float(power_w) for power_w in dense.values[rows]),
        )

    def events(self, timeout_s: float) -> tuple[Event, ...]:
        deadline_ns = self._clock.now_ns() + round(timeout_s * 1e9)
        while True:
            then_ns = self._then_ns()
            events = [event for evidence in self._gpus.values() for event in evidence.trace.events]
            fresh = [event for event in events if self._returned_ns < event.at_ns <= then_ns]
            self._returned_ns = max(self._returned_ns, then_ns)
            if fresh or self._clock.now_ns() >= deadline_ns:
                return tuple(replace(event, at_ns=self._now_ns(event.at_ns)) for event in fresh)
            ahead_ns = [self._now_ns(event.at_ns) for event in events if event.at_ns > then_ns]
            self._clock.wait_until(min([deadline_ns, *ahead_ns]), self._closed)

    def close(self) -> None:
        self._closed.set()

    def _then_ns(self) -> int:
        """Return the current time on the recording's axis.  Raises SourceGoneError: after ``close``."""
        if self._closed.is_set():
            raise SourceGoneError(f"{self.name}: closed")
        return self._begin_ns + int((self._clock.now_ns() - self._start_ns) * self._speed)

    def _now_ns(self, then_ns: int) -> int:
        return self._start_ns + int((then_ns - self._begin_ns) / self._speed)

    def _at(self, uuid: str) -> tuple[Evidence, int]:
        then_ns = self._then_ns()
        if uuid not in self._gpus:
            raise DeviceLostError(uuid, f"{self.name} has no such GPU")
        evidence = self._gpus[uuid]
        if then_ns > evidence.window.end_ns:
            raise DeviceLostError(uuid, ENDED)
        return evidence, then_ns


def _value(trace: Trace, name: str, then_ns: int) -> float | None:
    """Return a signal's last recorded value at a time; None before the first value, in a gap, or for a stale value."""
    column = trace.column(name)
    row = int(np.searchsorted(column.at_ns, then_ns, side="right")) - 1
    if row < 0 or math.isnan(value := float(column.values[row])) or _in_gap(trace, SIGNALS[name], then_ns):
        return None
    # A value is stale after 1.5 heartbeats (fast lane) or 11 s (other lanes), and later if 1.5 refresh periods are longer.
    period_ns = trace.refresh_of_ns(name)
    fresh_ns = max(1.5 * HEARTBEAT_NS if SIGNALS[name] is Lane.FAST else _SLOW_FRESH_NS, 1.5 * period_ns)
    return value if then_ns - column.at_ns[row] <= fresh_ns else None


def _in_gap(trace: Trace, lane: Lane, then_ns: int) -> bool:
    return any(gap.lane == lane and gap.begin_ns < then_ns < gap.end_ns for gap in trace.gaps)
