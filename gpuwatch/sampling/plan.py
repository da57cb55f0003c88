"""Which signal is asked how often on this GPU: decided by what each call was measured to cost, never by a model's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from annotate.evidence import Device, Lane, signals

FAST_IDLE_NS = 50_000_000
FAST_ACTIVE_NS = 10_000_000
ROW_NS = 50_000_000  # of the whole fast row in a window: the driver writes its values anew every 100 ms, asked twice as often
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

    def period_ns(self, lane: Lane, *, active: bool) -> int:
        return (self.active_period_ns if active else self.idle_period_ns)[lane]

    def in_a_window(self, idle_period_ns: int, active_period_ns: int) -> Mapping[Lane, int]:
        """The periods of the fast lane and its pulse in a window, of those asked for and what the budget allows."""
        return in_a_window(idle_period_ns, active_period_ns, self.least_period_ns, pulse=bool(self.names.get(Lane.PULSE)))


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


def unmeasured(device: Device, idle_period_ns: int = FAST_IDLE_NS, active_period_ns: int = FAST_ACTIVE_NS) -> SamplingPlan:
    """Every signal in the lane it was made for: the plan of a GPU that could not be measured, and may come back."""
    return SamplingPlan(
        uuid=device.uuid,
        names={**{lane: signals(lane) for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE)}, Lane.PULSE: PULSE},
        idle_period_ns={Lane.FAST: idle_period_ns, Lane.SLOW: SLOW_IDLE_NS},
        active_period_ns={**in_a_window(idle_period_ns, active_period_ns, {}, pulse=True), Lane.SLOW: SLOW_ACTIVE_NS},
        reasons=dict.fromkeys((Lane.FAST, Lane.SLOW), "not measured: the GPU did not answer when the daemon started"),
    )
