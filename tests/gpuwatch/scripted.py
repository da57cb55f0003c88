"""A scripted source with given values, costs, hangs and losses, and a sink that stores sweeps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from annotate.evidence import Device, Event, Lane, PowerRecord, ProcessList, Reading, signals
from gpuwatch.interfaces import Clock, Sweep
from tests.waiting import PATIENCE_S

UUID = "GPU-00000000-0000-0000-0000-000000000009"
DEVICE = Device(uuid=UUID, name="scripted")


@dataclass
class Scripted:
    """A source whose signals are 1, or ``values`` of the current time; costs elapse only with ``takes_time``."""

    clock: Clock
    values: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)
    costs_ns: Mapping[str, int] = field(default_factory=dict)
    usual_cost_ns: int = 1000
    fails: Callable[[Lane], None] = lambda lane: None
    takes_time: bool = False
    reads: list[tuple[Lane, tuple[str, ...]]] = field(default_factory=list)
    process_lists: list[bool] = field(default_factory=list)
    pending: list[Event] = field(default_factory=list)
    closed: bool = False
    name: str = "scripted"
    simulated: bool = True

    def devices(self) -> tuple[Device, ...]:
        return (DEVICE,)

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        self.reads.append((lane, tuple(names)))
        self.fails(lane)
        cost_ns = sum(self.costs_ns.get(name, self.usual_cost_ns) for name in names)
        if self.takes_time:
            self.clock.wait_until(self.clock.now_ns() + cost_ns, threading.Event())
        now_ns = self.clock.now_ns()
        values: dict[str, Any] = {name: self.values[name](now_ns) if name in self.values else 1 for name in names}
        return Reading(uuid=uuid, lane=lane, at_ns=now_ns, took_ns=cost_ns, **values)

    def read_process_list(self, uuid: str, *, utilization: bool = False) -> ProcessList:
        self.process_lists.append(utilization)
        self.fails(Lane.PROCESSES)
        return ProcessList(uuid=uuid, at_ns=self.clock.now_ns(), took_ns=1000, processes=())

    def power_record(self, uuid: str) -> PowerRecord:
        self.fails(Lane.POWER)
        return PowerRecord(uuid=uuid, at_ns=self.clock.now_ns(), took_ns=1000, sample_at_ns=(), sample_w=())

    def events(self, timeout_s: float) -> tuple[Event, ...]:
        self.fails(Lane.EVENTS)
        found, self.pending = tuple(self.pending), []
        if not found:
            threading.Event().wait(timeout_s)
        return found

    def close(self) -> None:
        self.closed = True


class Kept:
    """A sink that stores its sweeps."""

    def __init__(self) -> None:
        self.sweeps: list[Sweep] = []
        self._came = threading.Condition()

    def take(self, sweep: Sweep) -> None:
        with self._came:
            self.sweeps.append(sweep)
            self._came.notify_all()

    def of(self, lane: Lane) -> list[Sweep]:
        return [sweep for sweep in self.sweeps if sweep.lane == lane]

    def wait_for(self, wanted: Callable[[Sequence[Sweep]], bool], timeout_s: float = PATIENCE_S) -> bool:
        with self._came:
            return self._came.wait_for(lambda: wanted(self.sweeps), timeout_s)


def every(period_ns: int) -> Callable[[int], int]:
    """Return a counter that steps once per period."""
    return lambda now_ns: now_ns // period_ns


def silent(_: int) -> None:
    """Return None, as for an unanswered signal."""


FAST = signals(Lane.FAST)
