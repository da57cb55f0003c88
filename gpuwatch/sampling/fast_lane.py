"""The fast lane of one GPU: the whole row when it is due, its pulse at the deadlines between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from annotate.evidence import Lane
from gpuwatch.interfaces import Clock, Observed
from gpuwatch.sampling.current_source import CurrentSource
from gpuwatch.sampling.driver_loop import FastLaneLoop
from gpuwatch.sampling.lane_periods import LanePeriods
from gpuwatch.sampling.loop import LaneTurn, Passes
from gpuwatch.sampling.plan import SamplingPlan


class FastLane:
    """Reads rows and pulses, pass by pass or by the source's own loop where it has one."""

    def __init__(
        self,
        plan: SamplingPlan,
        current: CurrentSource,
        periods: LanePeriods,
        clock: Clock,
        loop: FastLaneLoop,
        is_woken: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._current = current
        self._periods = periods
        self._clock = clock
        self._loop = loop
        self._is_woken = is_woken
        self._row_at_ns = 0  # when the whole row was last read
        self._is_row_wanted = False
        self.turn = LaneTurn("fast", plan.uuid, Lane.FAST, self._read, lambda: periods.fast_ns)
        self.turn.ask = current.reopened_for(self.turn)
        self.turn.ask_on = self._read_on

    def want_row(self) -> None:
        """Have the whole row read next."""
        self._is_row_wanted = True

    def _read(self) -> Sequence[Observed]:
        self._loop.give_all()  # a GPU lost in the loop is read alone
        now_ns = self._clock.now_ns()
        lane = Lane.PULSE if now_ns - self._last_row_ns() < self._periods.row_after_ns else Lane.FAST
        if lane is Lane.FAST:
            self._row_at_ns = now_ns
        return (self._current.source.read(self._plan.uuid, lane, self._plan.names.get(lane, ())),)

    def _read_on(self, due_ns: int, until_ns: int) -> Passes | None:
        """Read from a deadline until a time by the source's own loop; None where it has none."""
        source = self.turn.asked_of = self._current.source
        found = self._loop.run(
            source,
            due_ns,
            until_ns,
            self._periods.fast_ns,
            row_at_ns=self._last_row_ns(),
            row_after_ns=self._periods.row_after_ns,
            is_woken=self._is_woken,
        )
        rows_ns = [each.due_ns + each.late_ns for each in found[0] if each.reading.lane is Lane.FAST] if found else []
        self._row_at_ns = max(rows_ns, default=self._row_at_ns)
        return found

    def _last_row_ns(self) -> int:
        """Return when the whole row was last read; long ago, if it is wanted now."""
        is_wanted, self._is_row_wanted = self._is_row_wanted, False
        if is_wanted:
            self._row_at_ns = 0
        return self._row_at_ns
