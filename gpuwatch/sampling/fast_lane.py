"""The fast lane of one GPU: whole rows when due, and pulses at the deadlines in between.

The fast thread runs a source's own loop, and other threads interrupt it; the sinks then get the readings in order of time.
"""

from collections import deque
from collections.abc import Callable, Sequence

from annotate.evidence import Lane, Reading
from gpuwatch.errors import SourceError
from gpuwatch.interfaces import Clock, DriverLoop, Observed, Pass, Source, Sweep
from gpuwatch.sampling.loop import CurrentSource, LaneTurn, Passes
from gpuwatch.sampling.plan import LanePeriods


class FastLaneLoop:
    """A source's own loop for one GPU.  If the source has no loop, all sweeps go straight to the sinks."""

    def __init__(self, periods: LanePeriods, give: Callable[[Sweep], None]) -> None:
        self._periods = periods
        self._give = give
        self._series: DriverLoop | None = None
        self._aside: deque[Sweep] = deque()  # sweeps of other threads, read while the loop ran
        self._awaited: deque[Callable[[], None]] = deque()

    @property
    def is_found(self) -> bool:
        """Return whether the source is known to have a loop."""
        return self._series is not None

    @property
    def asking_since_ns(self) -> int | None:
        series = self._series
        return series.asking_since_ns if series is not None else None

    def run(
        self,
        source: Source,
        due_ns: int,
        until_ns: int,
        period_ns: int,
        *,
        row_at_ns: int,
        row_after_ns: int,
        is_woken: Callable[[], bool],
    ) -> tuple[Sequence[Pass], SourceError | None] | None:
        """Return the passes of the source's loop until ``until_ns``, or None if the source has no loop."""
        self.give_all()
        offer = getattr(source, "series", None)
        try:
            plan = self._periods.plan
            row, pulse = (plan.names.get(lane, ()) for lane in (Lane.FAST, Lane.PULSE))
            found: DriverLoop | None = offer(plan.uuid, row, pulse) if offer is not None else None
        except SourceError as error:
            return (), error
        self._series = found
        if found is None:
            return None
        if is_woken():  # the wake-up came before this loop could be interrupted
            return (), None
        return found.run(
            due_ns, until_ns, period_ns, row_at_ns=row_at_ns, row_after_ns=row_after_ns, is_resting=self._periods.is_resting
        )

    def interrupt(self) -> None:
        series = self._series
        if series is not None:
            series.interrupt()

    def give(self, sweep: Sweep) -> None:
        """Give a sweep of the fast thread to the sinks, after earlier sweeps of other threads."""
        while self._aside and self._aside[0].observed.at_ns <= sweep.observed.at_ns:
            self._give(self._aside.popleft())
        self._give(sweep)

    def give_from_aside(self, sweep: Sweep) -> None:
        """Give another thread's sweep to the sinks; with a loop, queue a reading until the loop's earlier passes are given."""
        if self._series is not None and isinstance(sweep.observed, Reading):
            self._aside.append(sweep)
        else:
            self._give(sweep)

    def hand_over(self, given: Callable[[], None]) -> None:
        """Call ``given`` once the sinks have all earlier readings; with a loop, the fast thread calls it after a wake-up."""
        if self._series is None:
            given()
        else:
            self._awaited.append(given)

    def give_all(self) -> None:
        """Give other threads' sweeps to the sinks and release waiting callers; only the fast thread calls this method."""
        awaited = [self._awaited.popleft() for _ in range(len(self._awaited))]
        while self._aside:
            self._give(self._aside.popleft())
        for given in awaited:
            given()


class FastLane:
    """A reader of rows and pulses, pass by pass or through the source's own loop."""

    def __init__(
        self,
        current: CurrentSource,
        periods: LanePeriods,
        clock: Clock,
        loop: FastLaneLoop,
        is_woken: Callable[[], bool],
    ) -> None:
        self._current = current
        self._periods = periods
        self._clock = clock
        self._loop = loop
        self._is_woken = is_woken
        self._row_at_ns = 0  # time of the last whole row
        self._is_row_wanted = False
        self._last_pulse: tuple[int | None, int | None] | None = None
        self.turn = LaneTurn("fast", periods.plan.uuid, Lane.FAST, self._read, lambda: periods.fast_ns)
        self.turn.ask = current.reopened_for(self.turn)
        self.turn.ask_on, self.turn.hold_ns = self._read_on, lambda: periods.hold_ns

    def want_row(self) -> None:
        """Read a whole row at the next pass."""
        self._is_row_wanted = True

    def _read(self) -> Sequence[Observed]:
        self._loop.give_all()  # this pass is outside of the source's loop
        now_ns = self._clock.now_ns()
        lane = Lane.PULSE if now_ns - self._last_row_ns() < self._periods.row_after_ns else Lane.FAST
        if lane is Lane.FAST:
            self._row_at_ns = now_ns
        plan = self._periods.plan
        reading = self._current.source.read(plan.uuid, lane, plan.names.get(lane, ()))
        pulse = (reading.sm_clock_mhz, reading.event_reasons_mask)
        is_repeated, self._last_pulse = pulse == self._last_pulse, pulse
        # As in a source's own loop: a resting GPU's repeated pulse is not stored.
        return () if lane is Lane.PULSE and is_repeated and self._periods.is_resting else (reading,)

    def _read_on(self, due_ns: int, until_ns: int) -> Passes | None:
        """Read from a deadline until a time with the source's own loop; return None if the source has no loop."""
        source = self.turn.asked_of = self._current.source
        is_resting = self._periods.is_resting
        found = self._loop.run(
            source,
            due_ns,
            until_ns,
            self._periods.fast_ns,
            row_at_ns=self._last_row_ns(),
            row_after_ns=self._periods.row_after_ns,
            is_woken=self._is_woken,
        )
        if is_resting and found is not None and not found[0]:  # interrupted: deadlines until now were met, nothing to store
            self.turn.due_ns = max(self.turn.due_ns, self._clock.now_ns())
        rows_ns = [each.due_ns + each.late_ns for each in found[0] if each.reading.lane is Lane.FAST] if found else []
        self._row_at_ns = max(rows_ns, default=self._row_at_ns)
        return found

    def _last_row_ns(self) -> int:
        """Return the time of the last whole row; 0 if a whole row is wanted now."""
        is_wanted, self._is_row_wanted = self._is_row_wanted, False
        if is_wanted:
            self._row_at_ns = 0
        return self._row_at_ns
