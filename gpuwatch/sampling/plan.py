"""The plan of one GPU: its signals by lane and their periods, from the measured cost of each call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from annotate.evidence import Device, Lane, signals

FAST_IDLE_NS = 50_000_000
FAST_ACTIVE_NS = 10_000_000
ROW_NS = 50_000_000  # period of the whole fast row in a window: half of the driver's 100 ms refresh
# Period of an idle GPU's pulse: the sampler notices work within half a second.  A whole row is read before the last one goes
# stale, so that the state before a window is known.  After such a pause a reading needs more CPU time (decision 0069).
REST_PULSE_NS = 450_000_000
REST_ROW_NS = 900_000_000
HOLD_NS = 250_000_000
REST_HOLD_NS = 1_500_000_000  # two rows of a resting GPU are passed on together; three would be stale on a screen
SLOWING_NS = 240_000_000  # the first step towards rest: the store would record a longer one as a gap
REST_SLOW_NS = 300_000_000_000  # period of a resting GPU's slow lane, with its expensive calls, without clients and scrapes
SLOW_IDLE_NS = 10_000_000_000
SLOW_ACTIVE_NS = 1_000_000_000  # short enough that rows inside the window locate a counter's change of a tenth of a second

# Signals read at the full rate in a window: clock changes and their reasons must be located as precisely as iterations. Power
# has its own record (20 ms apart), counters miss nothing between two rows, and other signals change slowly.
PULSE = ("sm_clock_mhz", "event_reasons_mask")


@dataclass(frozen=True, slots=True)
class PlanTargets:
    """Targets of a plan: the periods of the fast lane, the budget of each lane, and limits of measuring."""

    idle_period_ns: int = FAST_IDLE_NS
    active_period_ns: int = FAST_ACTIVE_NS
    budget_ratio: float = 0.01  # part of one CPU core, for each lane of this GPU
    dear_ns: int = 1_000_000  # a fast signal that costs more, and far more than the others, moves to the slow lane
    measured_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """The signals of one GPU by lane, their periods, their costs, and the reasons."""

    uuid: str
    names: Mapping[Lane, tuple[str, ...]]
    idle_period_ns: Mapping[Lane, int]
    active_period_ns: Mapping[Lane, int]
    least_period_ns: Mapping[Lane, int] = field(default_factory=dict)  # shortest periods that the budget allows
    cost_ns: Mapping[str, int] = field(default_factory=dict)  # by signal, each read alone
    row_cost_ns: Mapping[Lane, int] = field(default_factory=dict)  # by lane, all read together
    refresh_ns: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(
        default_factory=dict
    )  # by signal or lane: the reason for a drop, a move or a longer period
    unanswered: frozenset[str] = frozenset()  # dropped because this GPU or driver does not answer

    @property
    def is_measured(self) -> bool:
        return bool(self.row_cost_ns)


def in_a_window(idle_period_ns: int, active_period_ns: int, least_ns: Mapping[Lane, int], *, pulse: bool) -> dict[Lane, int]:
    """Return the periods of whole rows and pulses in a window; leave out a pulse that is no more frequent than the rows.

    An idle period shorter than ``ROW_NS`` also applies to the whole row in a window.
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
    """Return a plan with every signal in its preferred lane, for a GPU without measured costs."""
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
    """The plan's periods, as configured within the plan's budget.  Any thread may read the periods."""

    def __init__(self, plan: SamplingPlan) -> None:
        self.is_active = False
        self.is_attended = True  # True while a client, a scraper or a window may need recent readings of the slow lane
        self.rate = WatchRate.USUAL
        self.replan(plan)

    def replan(self, plan: SamplingPlan) -> None:
        """Switch to the periods of a newly measured plan, from the next pass on."""
        self.plan = plan
        self._idle_ns: Mapping[Lane, int] = plan.idle_period_ns
        self._active_ns: Mapping[Lane, int] = plan.active_period_ns

    @property
    def by_lane_ns(self) -> Mapping[Lane, int]:
        """Return the current period of each lane; the pulse only while a window is open or the GPU rests."""
        if self.is_active:
            return self._active_ns
        return self._idle_ns if self.rate is WatchRate.USUAL else self._resting_ns(self._idle_ns)

    @property
    def is_resting(self) -> bool:
        return self.rate is WatchRate.RESTING and not self.is_active

    def _resting_ns(self, idle_ns: Mapping[Lane, int]) -> dict[Lane, int]:
        """Return the periods of a resting GPU: fast rows and slow rows are never read more often than usual."""
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
        """Return the current period of the fast lane: of the pulse if it has one, else of the whole row."""
        by_lane_ns = self.by_lane_ns
        return by_lane_ns.get(Lane.PULSE) or by_lane_ns[Lane.FAST]

    @property
    def hold_ns(self) -> int:
        """Return the longest time for which the source's own loop may hold a reading back."""
        return REST_HOLD_NS if self.is_resting and not self.is_attended else HOLD_NS

    @property
    def row_after_ns(self) -> int:
        """Return the age of the last whole row at which the next one is due; before that, the pulse is read."""
        by_lane_ns = self.by_lane_ns
        pulse_ns = by_lane_ns.get(Lane.PULSE)
        # Deadlines lie a pulse apart and passes may be late: the margin of half a pulse separates one row from the next.
        return 0 if pulse_ns is None else by_lane_ns[Lane.FAST] - pulse_ns // 2

    def configure(self, idle_period_ns: int, active_period_ns: int) -> None:
        """Change the periods of the fast lane and its pulse, from the next pass on."""
        plan = self.plan
        self._idle_ns = {**self._idle_ns, Lane.FAST: max(idle_period_ns, plan.least_period_ns.get(Lane.FAST, 0))}
        has_pulse = bool(plan.names.get(Lane.PULSE))
        active_ns = in_a_window(idle_period_ns, active_period_ns, plan.least_period_ns, pulse=has_pulse)
        self._active_ns = {**active_ns, Lane.SLOW: self._active_ns[Lane.SLOW]}
