"""The sampler of one GPU: a fast and a slow thread, and the edges of windows between them."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from annotate.evidence import Lane
from gpuwatch.errors import SourceError
from gpuwatch.interfaces import Clock, Lost, Observed, Sink, Source, Sweep
from gpuwatch.sampling.fast_lane import FastLane, FastLaneLoop
from gpuwatch.sampling.loop import CurrentSource, LaneTurn, sweeps
from gpuwatch.sampling.plan import LanePeriods, SamplingPlan
from gpuwatch.sampling.rest import REST_AFTER_NS, Rest
from gpuwatch.sampling.sampler_thread import HangWatch, SamplerThread

_SPACING_NS = 100_000_000  # the shortest time from a pass of a slow turn to a hurried one


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerTiming:
    """Periods of the readings outside of the plan, and the patience of a sampler's threads."""

    processes_ns: int = 200_000_000
    idle_processes_ns: int = 1_000_000_000
    power_record_ns: int = 1_000_000_000  # the driver's power record holds 2.4 s
    process_use_ns: int = 1_000_000_000
    rest_after_ns: int = REST_AFTER_NS
    rest_ns: int = 30_000_000_000  # period of readings outside of the plan's lanes, for a resting GPU without clients
    idle_process_use_ns: int = 10_000_000_000
    hang_ns: int = 5_000_000_000  # far longer than any known call
    nap_ns: int = 10_000_000_000  # longest delay of a stop by the event alone; the sampler's ``stop`` wakes the threads
    give_way_ns: int = 5_000_000  # delay of slow calls after an edge's first reads: slow calls hold the driver's locks


_TIMING = SamplerTiming()


class Sampler:
    """The two threads that read one GPU by its plan, and give every sweep to every sink.

    A hung call blocks only its own thread: the sinks get a Lost, and the other thread and the other GPUs continue.  If the
    whole source is gone, ``reopen`` gets that source before each retry and returns a new one.
    """

    def __init__(
        self,
        source: Source,
        plan: SamplingPlan,
        sinks: Sequence[Sink],
        clock: Clock,
        stop: threading.Event,
        *,
        reopen: Callable[[Source], Source] | None = None,
        timing: SamplerTiming = _TIMING,
    ) -> None:
        self.plan = plan
        self._sinks = tuple(sinks)
        self._clock = clock
        self._stop = stop
        self._timing = timing
        self._periods = LanePeriods(plan)
        self.rest = Rest(self._periods, lambda: self.set_active(self.is_active), timing.rest_after_ns)
        self._current = CurrentSource(source, reopen)
        self._loop = FastLaneLoop(self._periods, self._give)
        self._fast_lane = FastLane(
            self._current, self._periods, clock, self._loop, lambda: self._fast.wake.is_set() or stop.is_set()
        )
        processes, *slow = _turns(self._current, self._periods, timing)
        self._power = next(turn for turn in slow if turn.lane is Lane.POWER)
        self._power_awaited: deque[tuple[int, Callable[[], None]]] = deque()
        self._fast = SamplerThread(
            f"gpuwatch-fast-{plan.uuid[-8:]}", (self._fast_lane.turn, processes), clock, stop, self._give, self._loop
        )
        self._slow = SamplerThread(f"gpuwatch-slow-{plan.uuid[-8:]}", slow, clock, stop, self._give)

    @property
    def is_active(self) -> bool:
        return self._periods.is_active

    @property
    def lost(self) -> str | None:
        """Return the reason why a turn of the fast thread has no answer, or None if all its turns have answers."""
        return self._fast.lost

    @property
    def period_ns(self) -> Mapping[Lane, int]:
        """Return the current period of each lane; the pulse only while a window is open or the GPU rests."""
        return self._periods.by_lane_ns

    @property
    def rate_hz(self) -> float:
        """Return the noted passes of the fast lane per second, rows and pulses, over the last ten seconds."""
        return self._fast_lane.turn.pace.rate_hz(self._clock.now_ns())

    def start(self) -> None:
        for thread in (self._fast, self._slow):
            thread.start(self._timing.nap_ns)
        watch = HangWatch((self._fast, self._slow), self._loop, self._clock, self._stop, self._give, self._timing.hang_ns)
        watch.start(f"gpuwatch-watch-{self.plan.uuid[-8:]}")

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Set the stop event (which others may share) and wait; return False if a thread is hung in the driver."""
        self._stop.set()
        self._wake_fast()
        self._slow.wake.set()
        for thread in (self._fast, self._slow):
            thread.join(timeout_s)
        return not (self._fast.is_alive or self._slow.is_alive)

    def set_active(self, active: bool) -> None:  # noqa: FBT001 - the state is the whole call
        """Switch between the idle and the active rate, and hurry every turn."""
        self._periods.is_active = active
        self.rest.end()
        self._fast_lane.want_row()
        now_ns = self._clock.now_ns()
        for turn in (*self._fast.turns, self._power):
            turn.hurry(now_ns)
        self._wake_fast()
        self._hurry_slow()

    def set_periods(self, idle_period_ns: int, active_period_ns: int) -> None:
        """Change the periods of the fast lane and its pulse, from the next pass on; the budget's limits stay."""
        self._periods.configure(idle_period_ns, active_period_ns)

    def replan(self, plan: SamplingPlan) -> None:
        """Switch to a newly measured plan, from the next pass on."""
        self.plan = plan
        self._periods.replan(plan)
        self._wake_fast()

    def edge(self) -> None:
        """Read the lanes edge and fast and the process list now, in the caller's thread; hurry the slow thread.

        A lost or hung GPU is not read in the caller's thread, because the call could block the caller.
        """
        if self.lost is None:
            # The continuous counters come first, because their delay is the uncertainty of the edge.
            first = [Lane.EDGE] if self.plan.names.get(Lane.EDGE) else []
            self._read_edge([*first, Lane.FAST, Lane.PROCESSES])
        self._hurry_slow()

    def read_power(self, given: Callable[[], None]) -> None:
        """Read the driver's power record once more; call ``given``, in any thread, once the sinks have the record.

        Only the slow thread reads the record, because two readers would each get a part.  ``given`` is called at once if that
        thread gets no answer.
        """
        if self._power.lost or self._power.hung or not self._slow.is_alive:
            given()
            return
        asked_ns = self._clock.now_ns()
        self._power_awaited.append((asked_ns, given))
        self._power.hurry(asked_ns)
        self._slow.wake.set()

    def hand_over(self, given: Callable[[], None]) -> None:
        """Call ``given``, in any thread, once the sinks have all earlier readings; call it at once for a lost GPU.

        A source's own loop passes readings on only now and then, and never while it waits for a hanging driver.
        """
        if self.lost is not None or not self._fast.is_alive:
            given()
        else:
            self._loop.hand_over(given)
            self._wake_fast()

    def status(self) -> dict[str, Any]:
        """Return state and cost over the last minute as plain data; ``cpu_ratio`` is both threads' share of one CPU core."""
        now_ns = self._clock.now_ns()
        threads = (self._fast, self._slow)
        ratios = [ratio for thread in threads if (ratio := thread.cost.ratio()) is not None]
        turns = [turn for thread in threads for turn in thread.turns]
        return {
            "lost": self.lost,
            "active": self.is_active,
            "cpu_ratio": sum(ratios) if ratios else None,
            "questions": {turn.what: asdict(turn.pace.statistics(turn.what, now_ns, turn.lost or turn.hung)) for turn in turns},
        }

    def sweeps(self) -> Iterator[Sweep]:
        """Yield every pass of both threads in this thread, without the sinks: for a VirtualClock, faster than real time."""
        self._slow.wake = self._fast.wake
        for sweep in sweeps((*self._fast.turns, *self._slow.turns), self._clock, self._stop, self._fast.wake):
            self.rest.take(sweep)
            yield sweep

    def _read_edge(self, lanes: Sequence[Lane]) -> None:
        uuid, now_ns = self.plan.uuid, self._clock.now_ns()
        for lane in lanes:
            source = self._current.source
            try:
                observed: Observed = (
                    source.read_process_list(uuid)
                    if lane is Lane.PROCESSES
                    else source.read(uuid, lane, self.plan.names.get(lane, ()))
                )
            except SourceError as error:
                self._give(Sweep(uuid, lane, now_ns, 0, 0, Lost(self._clock.now_ns(), str(error))))
                return
            self._loop.give_from_aside(Sweep(uuid, lane, now_ns, 0, 0, observed))

    def _hurry_slow(self) -> None:
        due_ns = self._clock.now_ns() + self._timing.give_way_ns
        for turn in self._slow.turns:
            if turn.lane != Lane.POWER:
                turn.hurry(due_ns)
        self._slow.wake.set()

    def _wake_fast(self) -> None:
        self._fast.wake.set()
        self._loop.interrupt()

    def _give(self, sweep: Sweep) -> None:
        for sink in self._sinks:
            sink.take(sweep)
        self.rest.take(sweep)
        if sweep.lane is Lane.POWER:
            begun_ns = self._power.begun_ns or 0
            while self._power_awaited and self._power_awaited[0][0] <= begun_ns:
                self._power_awaited.popleft()[1]()


def _turns(current: CurrentSource, periods: LanePeriods, timing: SamplerTiming) -> list[LaneTurn]:
    """Return the turns other than the fast lane's: the process list's, and the slow thread's."""
    uuid = periods.plan.uuid

    def read_processes() -> Sequence[Observed]:
        return (current.source.read_process_list(uuid),)

    def at_rest_ns(usual_ns: int) -> int:
        return max(usual_ns, timing.rest_ns) if periods.is_resting and not periods.is_attended else usual_ns

    def processes_ns() -> int:
        return timing.processes_ns if periods.is_active else at_rest_ns(timing.idle_processes_ns)

    def power_ns() -> int:
        return at_rest_ns(timing.power_record_ns)

    def read_power() -> Sequence[Observed]:
        return (current.source.power_record(uuid),)

    def read_row() -> Sequence[Observed]:
        return (current.source.read(uuid, Lane.SLOW, periods.plan.names.get(Lane.SLOW, ())),)

    def read_use() -> Sequence[Observed]:
        return (current.source.read_process_list(uuid, utilization=True),)

    def use_ns() -> int:
        # A resting GPU has no work whose use could be measured: the next work wakes the turn.
        return timing.process_use_ns if periods.is_active else max(timing.idle_process_use_ns, periods.by_lane_ns[Lane.SLOW])

    turns = [
        LaneTurn("processes", uuid, Lane.PROCESSES, read_processes, processes_ns),
        LaneTurn("power", uuid, Lane.POWER, read_power, power_ns),
        LaneTurn("slow", uuid, Lane.SLOW, read_row, lambda: periods.by_lane_ns[Lane.SLOW], spacing_ns=_SPACING_NS),
        LaneTurn("utilization", uuid, Lane.PROCESSES, read_use, use_ns, spacing_ns=_SPACING_NS),
    ]
    for turn in turns:
        turn.ask = current.reopened_for(turn)
    return turns
