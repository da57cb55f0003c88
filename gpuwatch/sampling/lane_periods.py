"""The periods of one GPU's lanes: long while it is idle, short while a window is open on it."""

from __future__ import annotations

from collections.abc import Mapping

from annotate.evidence import Lane
from gpuwatch.sampling.plan import SamplingPlan


class LanePeriods:
    """Periods as planned, changed by the configuration within the plan's budget.  Any thread may read them."""

    def __init__(self, plan: SamplingPlan) -> None:
        self.is_active = False
        self._plan = plan
        self._idle_ns: Mapping[Lane, int] = plan.idle_period_ns
        self._active_ns: Mapping[Lane, int] = plan.active_period_ns

    @property
    def by_lane_ns(self) -> Mapping[Lane, int]:
        """How often each lane is read now; the pulse only while a window is open."""
        return self._active_ns if self.is_active else self._idle_ns

    @property
    def fast_ns(self) -> int:
        """How often the fast lane is read now, with its pulse or the whole row."""
        by_lane_ns = self.by_lane_ns
        return by_lane_ns.get(Lane.PULSE) or by_lane_ns[Lane.FAST]

    @property
    def row_after_ns(self) -> int:
        """How old the last whole row must be for the next; while it is younger the pulse is read."""
        by_lane_ns = self.by_lane_ns
        pulse_ns = by_lane_ns.get(Lane.PULSE)
        # Deadlines lie a pulse apart and are met more or less late: half of one tells this row's from the next's.
        return 0 if pulse_ns is None else by_lane_ns[Lane.FAST] - pulse_ns // 2

    def configure(self, idle_period_ns: int, active_period_ns: int) -> None:
        """Change the periods of the fast lane and its pulse, from the next pass on."""
        idle_ns = max(idle_period_ns, self._plan.least_period_ns.get(Lane.FAST, 0))
        slow_ns = self._active_ns[Lane.SLOW]
        self._idle_ns = {**self._idle_ns, Lane.FAST: idle_ns}
        self._active_ns = {**self._plan.in_a_window(idle_period_ns, active_period_ns), Lane.SLOW: slow_ns}
