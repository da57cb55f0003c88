"""The sampler of one GPU: a fast and a slow thread, the edges of windows between them, and what all of it cost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from annotate.evidence import Device, Lane
from gpuwatch.errors import SourceError
from gpuwatch.interfaces import Clock, Lost, Observed, Sink, Source, Sweep
from gpuwatch.sampling.driver_loop import FastLaneLoop
from gpuwatch.sampling.loop import LaneTurn, Passes, sweeps
from gpuwatch.sampling.pace import Statistics, ThreadCost
from gpuwatch.sampling.plan import SamplingPlan
from gpuwatch.sampling.wakeup import Wakeup

__all__ = ["Sampler", "SamplerStatistics", "sweeps"]


_HELD_COUNT = 8


@dataclass(frozen=True, slots=True)
class SamplerStatistics:
    """What watching one GPU took over the last minute; ``cpu_ratio`` is both threads' share of one processor."""

    uuid: str
    questions: tuple[Statistics, ...]
    cpu_ratio: float | None

    def of(self, what: str) -> Statistics:
        return next(statistics for statistics in self.questions if statistics.what == what)


class Sampler:
    """Asks one GPU what its plan says and gives every sweep to every sink, from its own threads.

    A hung call takes only its own thread with it: the sinks are told, the other thread and the other GPUs go on.  When the
    whole source is gone, ``reopen`` is called before each retry and gives the one to ask from then on.
    """

    def __init__(
        self,
        source: Source,
        device: Device,
        plan: SamplingPlan,
        sinks: Sequence[Sink],
        clock: Clock,
        stop: threading.Event,
        *,
        reopen: Callable[[], Source] | None = None,
        census_period_ns: int = 200_000_000,
        idle_census_period_ns: int = 1_000_000_000,  # contexts exist two seconds before their first kernel
        record_period_ns: int = 1_000_000_000,  # the driver's power record holds 2.4 s
        busy_slow_period_ns: int = 1_000_000_000,
        idle_slow_period_ns: int = 10_000_000_000,
        hang_ns: int = 5_000_000_000,  # the dearest call known took 0.3 s at worst
        nap_ns: int = 1_000_000_000,  # ``stop`` of the sampler wakes its threads; who only sets the event waits for so long
        give_way_ns: int = 5_000_000,  # an edge is read first: slow calls hold the driver's locks
    ) -> None:
        self.device = device
        self.plan = plan
        self._source = source
        self._reopen = reopen
        self._reopening = threading.Lock()
        self._sinks = tuple(sinks)
        self._clock = clock
        self._stop = stop
        self._hang_ns = hang_ns
        self._nap_ns = nap_ns
        self._give_way_ns = give_way_ns
        self._active = False
        self._idle_period_ns: Mapping[Lane, int] = plan.idle_period_ns
        self._active_period_ns: Mapping[Lane, int] = plan.active_period_ns
        self._row_at_ns = 0  # when the whole fast row was last asked for
        self._whole = False  # the next answer is to be a whole row
        uuid = device.uuid
        self._series = FastLaneLoop(uuid, plan.names.get(Lane.FAST, ()), plan.names.get(Lane.PULSE, ()), self._give)

        def census_ns() -> int:
            return census_period_ns if self._active else idle_census_period_ns

        def rare_ns() -> int:
            return busy_slow_period_ns if self._active else idle_slow_period_ns

        self._fast = [
            LaneTurn("fast", uuid, Lane.FAST, self._row_or_pulse(), self._fast_period_ns),
            LaneTurn("processes", uuid, Lane.PROCESSES, self._census, census_ns),
        ]
        self._slow = [
            LaneTurn("power", uuid, Lane.POWER, lambda: (self._source.power_record(uuid),), lambda: record_period_ns),
            LaneTurn("slow", uuid, Lane.SLOW, self._row(Lane.SLOW), self._period_of(Lane.SLOW), spacing_ns=100_000_000),
            LaneTurn("utilization", uuid, Lane.PROCESSES, self._busy_census, rare_ns, spacing_ns=100_000_000),
        ]
        for turn in (*self._fast, *self._slow):
            turn.ask = self._reopened_if_gone(turn, turn.ask)
        self._fast[0].ask_on = self._ask_on
        self._fast_wake, self._slow_wake = Wakeup(), Wakeup()
        self._fast_cost, self._slow_cost = ThreadCost(), ThreadCost()
        self._threads = [
            self._thread("fast", self._fast, self._fast_wake, self._fast_cost),
            self._thread("slow", self._slow, self._slow_wake, self._slow_cost),
        ]
        self._watching = threading.Thread(target=self._watch_on, name=f"gpuwatch-watch-{uuid[-8:]}", daemon=True)

    @property
    def uuid(self) -> str:
        return self.device.uuid

    @property
    def active(self) -> bool:
        return self._active

    @property
    def lost(self) -> str | None:
        """Why the GPU's fast lane does not answer; None while it does."""
        return next((turn.lost or turn.hung for turn in self._fast if turn.lost or turn.hung), None)

    @property
    def gone(self) -> bool:
        """Whether the source as a whole said it is not there: open it again, then make new samplers."""
        return any(turn.gone for turn in (*self._fast, *self._slow))

    @property
    def period_ns(self) -> Mapping[Lane, int]:
        """How often each lane is asked now; the pulse only while a window is open."""
        return self._active_period_ns if self._active else self._idle_period_ns

    def start(self) -> None:
        for thread in (*self._threads, self._watching):
            thread.start()

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Set the event that was given (which others may share) and wait; False if a thread is hung in the driver."""
        self._stop.set()
        self._wake_fast()
        self._slow_wake.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def set_active(self, active: bool) -> None:  # noqa: FBT001 - the state is the whole call
        """Switch between the idle and the active rate, at once; either way the slow lane is read soon after."""
        self._active = active
        if active:
            self._whole = True
            now_ns = self._clock.now_ns()
            for turn in self._fast:
                turn.hurry(now_ns)
            self._wake_fast()
        self._hurry_slow()

    def set_periods(self, idle_period_ns: int, active_period_ns: int) -> None:
        """Change the periods of the fast lane and its pulse, from the next pass on; the budget's limits stay."""
        idle_ns = max(idle_period_ns, self.plan.least_period_ns.get(Lane.FAST, 0))
        slow_ns = self._active_period_ns[Lane.SLOW]
        self._idle_period_ns = {**self._idle_period_ns, Lane.FAST: idle_ns}
        self._active_period_ns = {**self.plan.in_a_window(idle_period_ns, active_period_ns), Lane.SLOW: slow_ns}

    def mark(self) -> None:
        """The cheap part of an edge, which a benchmark may wait for: the fast row, 0.2 ms on an H200 after a pause."""
        self._read_now([(Lane.FAST, self._row(Lane.FAST))])

    def edge(self) -> None:
        """Read now, in the caller's thread, all that pins down a window's edge: 2.3 ms on a loaded H200.

        The sinks get the sweeps.  A lost or hung GPU is not asked, so that it cannot hold up the caller.
        """
        # The continuous counter first: it is what the edge is for, and its own time is the edge's uncertainty.
        rows = [(Lane.EDGE, self._row(Lane.EDGE))] if self.plan.names.get(Lane.EDGE) else []
        self._read_now([*rows, (Lane.FAST, self._row(Lane.FAST)), (Lane.PROCESSES, self._census)])
        self._hurry_slow()

    def _read_now(self, questions: Sequence[tuple[Lane, Callable[[], Sequence[Observed]]]]) -> None:
        if self.lost is not None:
            return
        now_ns = self._clock.now_ns()
        for lane, ask in questions:
            try:
                found = ask()
            except SourceError as error:
                self._give(Sweep(self.uuid, lane, now_ns, 0, 0, Lost(self._clock.now_ns(), str(error))))
                return
            for item in found:
                self._series.give_from_aside(Sweep(self.uuid, lane, now_ns, 0, 0, item))

    def hand_over(self, given: Callable[[], None]) -> None:
        """Have ``given`` called, from any thread, once the sinks have all that was read so far.

        A source's own loop tells of it only now and then, and not at all while it waits for a driver that hangs.
        """
        if self.lost is not None or not self._threads[0].is_alive():
            given()
        else:
            self._series.hand_over(given)
            self._wake_fast()

    def watch(self) -> None:
        """Tell the sinks about a thread that got no answer or died.  A thread of its own calls this each second."""
        now_ns = self._clock.now_ns()
        for turn in (*self._fast, *self._slow):
            since_ns = turn.asking_since_ns
            if since_ns is None and turn is self._fast[0]:
                since_ns = self._series.asking_since_ns
            if since_ns is not None and turn.hung is None and now_ns - since_ns > self._hang_ns:
                self._hung(turn, now_ns, f"no answer for {self._hang_ns / 1e9:g} s")
        for thread, turns in zip(self._threads, (self._fast, self._slow), strict=True):
            if thread.ident is not None and not thread.is_alive() and not self._stop.is_set() and turns[0].hung is None:
                self._hung(turns[0], now_ns, "its sampling thread ended")

    @property
    def rate_hz(self) -> float:
        """How often a second the clock was read, with the whole fast row or between two of them, over the last ten."""
        return self._fast[0].pace.rate_hz(self._clock.now_ns())

    def statistics(self) -> SamplerStatistics:
        now_ns = self._clock.now_ns()
        shares = [share for cost in (self._fast_cost, self._slow_cost) if (share := cost.ratio()) is not None]
        return SamplerStatistics(
            uuid=self.uuid,
            questions=tuple(
                turn.pace.statistics(turn.what, now_ns, turn.lost or turn.hung) for turn in (*self._fast, *self._slow)
            ),
            cpu_ratio=sum(shares) if shares else None,
        )

    def status(self) -> dict[str, Any]:
        """State and cost as plain data, for people and machines."""
        statistics = self.statistics()
        return {
            "lost": self.lost,
            "active": self._active,
            "cpu_ratio": statistics.cpu_ratio,
            "questions": {question.what: asdict(question) for question in statistics.questions},
        }

    def sweeps(self) -> Iterator[Sweep]:
        """Every pass of both threads in this one, given to nobody: for a VirtualClock, faster than real time."""
        self._slow_wake = self._fast_wake
        return sweeps((*self._fast, *self._slow), self._clock, self._stop, self._fast_wake)

    def _row(self, lane: Lane) -> Callable[[], Sequence[Observed]]:
        uuid, names = self.uuid, self.plan.names.get(lane, ())
        return lambda: (self._source.read(uuid, lane, names),)

    def _row_or_pulse(self) -> Callable[[], Sequence[Observed]]:
        """The whole fast row whenever it is due; at the deadlines between, only what is in the pulse."""
        row, pulse = self._row(Lane.FAST), self._row(Lane.PULSE)

        def ask() -> Sequence[Observed]:
            self._series.told_all()  # a GPU lost in the loop is asked alone
            now_ns = self._clock.now_ns()
            if now_ns - self._last_row_ns() < self._row_after_ns():
                return pulse()
            self._row_at_ns = now_ns
            return row()

        return ask

    def _ask_on(self, due_ns: int, until_ns: int) -> Passes | None:
        """The fast question from a deadline until a time, by the source's own loop; None where it has none."""
        self._fast[0].asked_of = self._source
        found = self._series.run(
            self._source, due_ns, until_ns, self._fast_period_ns(), row_at_ns=self._last_row_ns(),
            row_after_ns=self._row_after_ns(), woken=lambda: self._fast_wake.is_set() or self._stop.is_set(),
        )  # fmt: skip
        rows_ns = [each.due_ns + each.late_ns for each in found[0] if each.reading.lane is Lane.FAST] if found else []
        self._row_at_ns = max(rows_ns, default=self._row_at_ns)
        return found

    def _last_row_ns(self) -> int:
        """When the whole row was last asked; long ago, if it is wanted now."""
        whole, self._whole = self._whole, False
        if whole:
            self._row_at_ns = 0
        return self._row_at_ns

    def _row_after_ns(self) -> int:
        """How old the last whole row must be for the next; younger, the pulse is asked."""
        period_ns = self.period_ns
        pulse_ns = period_ns.get(Lane.PULSE)
        # Deadlines lie a pulse apart and are met more or less late: half of one tells this row's from the next's.
        return 0 if pulse_ns is None else period_ns[Lane.FAST] - pulse_ns // 2

    def _fast_period_ns(self) -> int:
        period_ns = self.period_ns
        return period_ns.get(Lane.PULSE) or period_ns[Lane.FAST]

    def _census(self) -> Sequence[Observed]:
        return (self._source.census(self.uuid),)

    def _busy_census(self) -> Sequence[Observed]:
        return (self._source.census(self.uuid, utilization=True),)

    def _reopened_if_gone(self, turn: LaneTurn, ask: Callable[[], Sequence[Observed]]) -> Callable[[], Sequence[Observed]]:
        def asked() -> Sequence[Observed]:
            if turn.gone and self._reopen is not None:
                failed = turn.asked_of
                with self._reopening:
                    if self._source is failed:  # the GPU's other thread was not quicker
                        self._source = self._reopen()
            turn.asked_of = self._source
            return ask()

        return asked

    def _watch_on(self) -> None:
        while not self._clock.wait_until(self._clock.now_ns() + self._hang_ns // 5, self._stop):
            self.watch()

    def _period_of(self, lane: Lane) -> Callable[[], int]:
        return lambda: self.period_ns[lane]

    def _hurry_slow(self) -> None:
        due_ns = self._clock.now_ns() + self._give_way_ns
        for turn in self._slow:
            if turn.lane != Lane.POWER:
                turn.hurry(due_ns)
        self._slow_wake.set()

    def _wake_fast(self) -> None:
        self._fast_wake.set()
        self._series.interrupt()

    def _hung(self, turn: LaneTurn, now_ns: int, reason: str) -> None:
        turn.hung, turn.hung_at_ns = reason, now_ns
        self._give(Sweep(self.uuid, turn.lane, now_ns, 0, 0, Lost(now_ns, reason)))

    def _give(self, sweep: Sweep) -> None:
        for sink in self._sinks:
            sink.take(sweep)

    def _thread(self, kind: str, turns: Sequence[LaneTurn], wake: Wakeup, cost: ThreadCost) -> threading.Thread:
        def run() -> None:
            held: list[Sweep] = []  # pulses: after a pause the sinks cost more than the calls, five at a time they do not
            give = self._series.give if turns is self._fast else self._give
            try:
                for sweep in sweeps(turns, self._clock, self._stop, wake, nap_ns=self._nap_ns):
                    held.append(sweep)
                    if sweep.lane is Lane.PULSE and not self._series.runs and len(held) < _HELD_COUNT:
                        continue
                    for each in held:
                        give(each)
                    held.clear()
                    cost.note(self._clock.now_ns())
            finally:
                if turns is self._fast:
                    self._series.told_all()

        # Daemonic: a thread inside a hung driver call can never be joined, and must not keep the process.
        return threading.Thread(target=run, name=f"gpuwatch-{kind}-{self.uuid[-8:]}", daemon=True)
