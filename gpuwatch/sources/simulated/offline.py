"""Evidence of a scene's benchmark, simulated without threads and faster than real time.

Campaigns count false alarms on this evidence.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from annotate.evidence import (
    Device,
    Event,
    Evidence,
    Gap,
    Host,
    Lane,
    Ownership,
    PowerRecord,
    Process,
    ProcessList,
    Reading,
    Trace,
    WindowRecord,
)
from annotate.evidence import signals as signals_of
from gpuwatch.clock import VirtualClock
from gpuwatch.errors import DeviceLostError
from gpuwatch.sampling.plan import PULSE, ROW_NS, SLOW_ACTIVE_NS
from gpuwatch.sources.simulated.scenes import Scene
from gpuwatch.sources.simulated.simulated_gpu import OWN_PID
from gpuwatch.sources.simulated.simulated_source import Simulated, scenes_named

_T = TypeVar("_T")
_MS = 1_000_000
_EPOCH_NS = 1_000_000_000_000


class _Witness:
    """A single-threaded stand-in for the sampler of one GPU, which stores rows and gaps."""

    def __init__(self, source: Simulated, device: Device) -> None:
        self.source, self.uuid = source, device.uuid
        self.readings: list[Reading] = []
        self.process_lists: list[ProcessList] = []
        self.power: list[PowerRecord] = []
        self.events: list[Event] = []
        self.gaps: list[Gap] = []
        self._last_ns: dict[Lane, int] = {}
        self._lost_since_ns: dict[Lane, int] = {}

    def slow(self, at_ns: int) -> None:
        self.row(Lane.SLOW, at_ns)
        self.read_process_list(at_ns, utilization=True)
        record = self._ask(Lane.POWER, at_ns, lambda: self.source.power_record(self.uuid))
        self.power += [record] if record else []

    def row(self, lane: Lane, at_ns: int) -> None:
        names = PULSE if lane is Lane.PULSE else signals_of(lane)
        # The pulse reads some signals of the fast lane, so a lost pulse is a gap of the fast lane.
        asked = Lane.FAST if lane is Lane.PULSE else lane
        reading = self._ask(asked, at_ns, lambda: self.source.read(self.uuid, lane, names))
        self.readings += [reading] if reading else []

    def read_process_list(self, at_ns: int, *, utilization: bool) -> None:
        process_list = self._ask(
            Lane.PROCESSES, at_ns, lambda: self.source.read_process_list(self.uuid, utilization=utilization)
        )
        if process_list:
            self.process_lists.append(replace(process_list, processes=tuple(_owned(p) for p in process_list.processes)))

    def _ask(self, lane: Lane, at_ns: int, question: Callable[[], _T]) -> _T | None:
        try:
            answer = question()
        except DeviceLostError as error:
            if not self._lost_since_ns:
                self.events.append(Event(uuid=self.uuid, at_ns=at_ns, kind="lost", text=error.reason))
            self._lost_since_ns.setdefault(lane, self._last_ns.get(lane, at_ns))
            return None
        if lane in self._lost_since_ns:
            self.gaps.append(Gap(begin_ns=self._lost_since_ns.pop(lane), end_ns=at_ns, lane=lane))
            if not self._lost_since_ns:
                self.events.append(Event(uuid=self.uuid, at_ns=at_ns, kind="back"))
        self._last_ns[lane] = at_ns
        return answer


def simulate(
    scene: str | Scene, *, seed: int = 0, lead_s: float = 5.0, tail_s: float = 0.5, timings: bool = True
) -> tuple[Evidence, ...]:
    """Return the evidence that a daemon would collect of the scene's benchmark, one piece per GPU.

    The fast lane runs at 20 Hz.  During the benchmark, clock and event reasons run at 100 Hz.  The slow lane runs every
    second and after the edges; process lists are read every 200 ms.

    The lead starts no earlier than the scene's epoch.  ``scene`` may be an unregistered ``Scene``.  Equal arguments give
    equal evidence.

    Raises UsageError: for an unknown scene.
    """
    members = scenes_named(scene) if isinstance(scene, str) else (scene,)
    return tuple(
        _simulate(members, member, seed, position, lead_s, tail_s, with_timings=timings)
        for position, member in enumerate(members)
    )


def _simulate(
    scenes: tuple[Scene, ...], scene: Scene, seed: int, position: int, lead_s: float, tail_s: float, *, with_timings: bool
) -> Evidence:
    clock = VirtualClock(_EPOCH_NS)
    source = Simulated(scenes, clock, seed=seed)
    device = [device for device in source.devices() if device.parent_uuid is None][position]
    begin_ns, end_ns = (_EPOCH_NS + round(at_s * 1e9) for at_s in scene.bench)
    witness = _Witness(source, device)
    first_ns, last_ns = max(_EPOCH_NS, begin_ns - round(lead_s * 1e9)), end_ns + round(tail_s * 1e9)
    edge = False
    for at_ns in _grid(first_ns, begin_ns, end_ns, last_ns):
        clock.wait_until(at_ns, _NEVER)
        whole = not begin_ns < at_ns < end_ns or (at_ns - begin_ns) % ROW_NS < 10 * _MS
        witness.row(Lane.FAST if whole else Lane.PULSE, at_ns)
        elapsed_ns = at_ns - first_ns
        if at_ns in (begin_ns, end_ns):
            witness.row(Lane.EDGE, at_ns)
        if elapsed_ns % (200 * _MS) < 10 * _MS:
            witness.read_process_list(at_ns, utilization=False)
        # The daemon's thread for slow calls yields to the edges, so it reads some milliseconds after each edge.
        if elapsed_ns % SLOW_ACTIVE_NS < 10 * _MS or edge:
            witness.slow(at_ns)
        edge = at_ns in (begin_ns, end_ns)
    witness.slow(last_ns)
    witness.events += [event for event in source.events(0.0) if event.uuid == device.uuid]
    return Evidence(
        window=WindowRecord(begin_ns=begin_ns, end_ns=end_ns, label=scene.name, pids=frozenset({OWN_PID})),
        device=device,
        trace=Trace.of(
            witness.readings, process_lists=witness.process_lists, power=witness.power, events=witness.events, gaps=witness.gaps
        ),
        host=_host(scene),
        timings=source.timings(device.uuid, begin_ns, end_ns) if with_timings else None,
    )


_NEVER = threading.Event()


def _grid(first_ns: int, begin_ns: int, end_ns: int, last_ns: int) -> list[int]:
    """Return the times of all reads: every 50 ms outside the window, every 10 ms inside, both edges, and the end."""
    due = [*range(first_ns, begin_ns, 50 * _MS), *range(begin_ns, end_ns, 10 * _MS), end_ns]
    return due + list(range(end_ns + 10 * _MS, last_ns, 50 * _MS)) + [last_ns]


def _owned(process: Process) -> Process:
    if process.pid == OWN_PID:
        return replace(process, ownership=Ownership.OWN)
    return replace(process, ownership=Ownership.FOREIGN if process.listed else Ownership.UNKNOWN)


def _host(scene: Scene) -> Host:
    """Return the figures of an idle host, or of a hogged host whose benchmark waits half of the time for a CPU core."""
    length_s = scene.bench[1] - scene.bench[0]
    run_wait_s = 0.5 * length_s if scene.hogged else 0.002 * length_s
    return Host(
        span_s=length_s,
        cpu_s=length_s - run_wait_s,
        run_wait_s=run_wait_s,
        threads_count=1,
        cgroup_throttled_s=0.0,
        steal_ratio=0.0,
        cpu_busy_ratio=1.0 if scene.hogged else 0.1,
        cpu_pressure_ratio=0.6 if scene.hogged else 0.0,
        cpu_allowed_count=16,
    )
