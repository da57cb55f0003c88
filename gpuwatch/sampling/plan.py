"""The plan of one GPU: its signals by lane and their periods, decided by what each call was measured to cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from annotate.evidence import Device, Lane, signals

FAST_IDLE_NS = 50_000_000
FAST_ACTIVE_NS = 10_000_000
ROW_NS = 50_000_000  # of the whole fast row in a window: the driver writes its values anew every 100 ms, asked twice as often
# An idle GPU at rest is looked at as rarely as work can be noticed within half a second; a whole row comes before the one before
# it goes stale, so that what lies before a window is known.  After such a pause a look took 1.2 ms of a processor on an H200, whose
# driver seems to open its page anew, where 20 looks a second take 0.1 ms each.
REST_PULSE_NS = 450_000_000
REST_ROW_NS = 900_000_000
SLOWING_NS = 240_000_000  # the first step towards rest: a longer one would be stored as a gap in a lane read 20 times a second
REST_SLOW_NS = 300_000_000_000  # of the slow lane, while nobody is connected: its dear calls take 15 to 30 ms on an H200
SLOW_IDLE_NS = 10_000_000_000
SLOW_ACTIVE_NS = 1_000_000_000  # a counter that moved for a tenth of a second is placed by rows inside the window

# What a window asks at the full rate: when the clock moved, and why, are placed in time as finely as iterations are.  Power
# has its own record (20 ms apart), counters miss nothing between two rows, and what is left moves slowly.
PULSE = ("sm_clock_mhz", "event_reasons_mask")


@dataclass(frozen=True, slots=True)
class PlanTargets:
    """What a plan is made for: how often the fast lane shall be read, and what that may cost."""

    idle_period_ns: int = FAST_IDLE_NS
    active_period_ns: int = FAST_ACTIVE_NS
    budget_ratio: float = 0.01  # of one processor, for each lane of this GPU
    dear_ns: int = 1_000_000  # a fast signal that costs more is read in the slow lane
    measured_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """What is asked of one GPU in which lane and how often, what it costs, and why."""

    uuid: str
    names: Mapping[Lane, tuple[str, ...]]
    idle_period_ns: Mapping[Lane, int]
    active_period_ns: Mapping[Lane, int]
    least_period_ns: Mapping[Lane, int] = field(default_factory=dict)  # what the budget allows, whatever is configured
    cost_ns: Mapping[str, int] = field(default_factory=dict)  # by signal, asked alone
    row_cost_ns: Mapping[Lane, int] = field(default_factory=dict)  # by lane, asked together
    refresh_ns: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)  # by signal or lane: why it was dropped, moved or stretched
    unanswered: frozenset[str] = frozenset()  # dropped because this GPU or driver does not answer

    @property
    def is_measured(self) -> bool:
        return bool(self.row_cost_ns)


def in_a_window(idle_period_ns: int, active_period_ns: int, least_ns: Mapping[Lane, int], *, pulse: bool) -> dict[Lane, int]:
    """A pulse at the full rate and the whole row as often as its values need, or no pulse where that is no rarer.

    Whoever has the whole row asked more often than ``ROW_NS`` while idle has it so in a window too.
    """
    row_ns = max(active_period_ns, least_ns.get(Lane.FAST, 0))
    if not pulse:
        return {Lane.FAST: row_ns}
    row_ns = max(row_ns, min(idle_period_ns, ROW_NS))
    pulse_ns = max(active_period_ns, least_ns.get(Lane.PULSE, 0))
    return {Lane.FAST: row_ns, Lane.PULSE: pulse_ns} if pulse_ns < row_ns else {Lane.FAST: row_ns}


def unmeasured(
    device: Device,
    idle_period_ns: int = FAST_IDLE_NS,
    active_period_ns: int = FAST_ACTIVE_NS,
    *,
    why: str = "the GPU did not answer when the daemon started",
) -> SamplingPlan:
    """Every signal in the lane it was made for: the plan of a GPU that is not measured yet, or could not be and may come back."""
    return SamplingPlan(
        uuid=device.uuid,
        names={**{lane: signals(lane) for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE)}, Lane.PULSE: PULSE},
        idle_period_ns={Lane.FAST: idle_period_ns, Lane.SLOW: SLOW_IDLE_NS},
        active_period_ns={**in_a_window(idle_period_ns, active_period_ns, {}, pulse=True), Lane.SLOW: SLOW_ACTIVE_NS},
        reasons=dict.fromkeys((Lane.FAST, Lane.SLOW), f"not measured: {why}"),
    )


class WatchRate(Enum):
    """The rate of a GPU without an open window."""

    USUAL = auto()
    SLOWING = auto()
    RESTING = auto()


class LanePeriods:
    """Periods as planned, changed by the configuration within the plan's budget.  Any thread may read them."""

    def __init__(self, plan: SamplingPlan) -> None:
        self.is_active = False
        self.is_attended = True  # somebody looks at what the slow lane reads
        self.rate = WatchRate.USUAL
        self.replan(plan)

    def replan(self, plan: SamplingPlan) -> None:
        """Take the periods of a plan that was measured meanwhile, from the next pass on."""
        self.plan = plan
        self._idle_ns: Mapping[Lane, int] = plan.idle_period_ns
        self._active_ns: Mapping[Lane, int] = plan.active_period_ns

    @property
    def by_lane_ns(self) -> Mapping[Lane, int]:
        """Return the period of each lane now; the pulse only while a window is open, and while the GPU rests."""
        if self.is_active:
            return self._active_ns
        return self._idle_ns if self.rate is WatchRate.USUAL else self._resting_ns(self._idle_ns)

    @property
    def is_resting(self) -> bool:
        return self.rate is WatchRate.RESTING and not self.is_active

    def _resting_ns(self, idle_ns: Mapping[Lane, int]) -> dict[Lane, int]:
        """Return the periods of an idle GPU, none shorter than those of a busy one."""
        slow_ns = idle_ns[Lane.SLOW] if self.is_attended else max(REST_SLOW_NS, idle_ns[Lane.SLOW])
        if self.rate is WatchRate.SLOWING:
            return {Lane.FAST: max(SLOWING_NS, idle_ns[Lane.FAST]), Lane.SLOW: slow_ns}
        found = {Lane.FAST: max(REST_ROW_NS, idle_ns[Lane.FAST]), Lane.SLOW: slow_ns}
        if self.plan.names.get(Lane.PULSE):
            found[Lane.PULSE] = max(REST_PULSE_NS, self.plan.least_period_ns.get(Lane.PULSE, 0))
        else:
            found[Lane.FAST] = max(REST_PULSE_NS, idle_ns[Lane.FAST])
        return found

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
        plan = self.plan
        self._idle_ns = {**self._idle_ns, Lane.FAST: max(idle_period_ns, plan.least_period_ns.get(Lane.FAST, 0))}
        has_pulse = bool(plan.names.get(Lane.PULSE))
        active_ns = in_a_window(idle_period_ns, active_period_ns, plan.least_period_ns, pulse=has_pulse)
        self._active_ns = {**active_ns, Lane.SLOW: self._active_ns[Lane.SLOW]}
