"""Which signal is asked how often on this GPU: decided by what each call was measured to cost, never by a model's name."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from annotate.evidence import SIGNALS, Device, Lane, Reading, signals
from gpuwatch.interfaces import Clock, Source, Sweep

FAST_IDLE_NS = 50_000_000
FAST_ACTIVE_NS = 10_000_000
ROW_NS = 50_000_000  # of the whole fast row in a window: the driver writes its values anew every 100 ms, asked twice as often
SLOW_IDLE_NS = 10_000_000_000
SLOW_ACTIVE_NS = 1_000_000_000  # a counter that moved for a tenth of a second is placed by rows inside the window

# What a window asks at the full rate: when the clock moved, and why, are placed in time as finely as iterations are.  Power
# has its own record (20 ms apart), counters miss nothing between two rows, and what is left moves slowly.
PULSE = ("sm_clock_mhz", "event_reasons_mask")

# Values that move with every refresh under load.  Memory in use answers at once, and a mask changes when the state does,
# so the time between their changes says nothing about the page they are read from.
_MOVING = frozenset({
    "sm_clock_mhz", "power_w", "power_average_w", "temperature_c", "utilization_ratio", "mem_utilization_ratio",
    "power_cap_ns", "sync_boost_ns", "sw_thermal_ns",
})  # fmt: skip

# None may be their answer today and a value tomorrow, so silence at the start does not end the asking.
_SOMETIMES_SILENT = frozenset({"sm_clock_lock_mhz"})


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


class Refresh:
    """How often each value of one GPU changes, learnt from the readings that pass by.

    Changes lie whole refreshes apart: one while a value moves, some where it mostly stands, as the clock of a GPU that
    nothing limits.  So the period is the median of the distances near the shortest ones, once two things are left out.  Below
    ``double_ns`` a change is the driver rewriting its page (an H200 seems to change twice within a millisecond in one of a
    thousand reads).  Above ``idle_ns`` the value merely stood still.
    """

    def __init__(
        self,
        uuid: str,
        *,
        double_ns: int = 50_000_000,
        idle_ns: int = 1_000_000_000,
        fewest: int = 3,
        kept: int = 64,
    ) -> None:
        self._uuid = uuid
        self._double_ns = double_ns
        self._idle_ns = idle_ns
        self._fewest = fewest
        self._kept = kept
        self._last: dict[str, tuple[object, int]] = {}
        self._seen_ns: dict[str, int] = {}
        self._distances_ns: dict[str, deque[int]] = {}

    def take(self, sweep: Sweep) -> None:
        """As a sink: fast rows of this GPU and its pulse are looked at, all else passes."""
        if sweep.lane in (Lane.FAST, Lane.PULSE) and isinstance(sweep.observed, Reading):
            self.observe(sweep.observed)

    def observe(self, reading: Reading) -> None:
        if reading.uuid != self._uuid:
            return
        at_ns = reading.at_ns
        for name in _MOVING:
            value = getattr(reading, name)
            if value is None:
                continue
            # Between values further apart than a refresh, changes were missed: distances across the hole would be too long.
            # Each has its own holes: what is not in the pulse may be asked far more rarely than what is.
            if at_ns - self._seen_ns.get(name, 0) > 2 * self._double_ns:
                self._last.pop(name, None)
            self._seen_ns[name] = at_ns
            last = self._last.get(name)
            if last is None:
                self._last[name] = (value, 0)  # since when it stands is not known
            elif value != last[0]:
                distance_ns = at_ns - last[1]
                if last[1] and self._double_ns <= distance_ns <= self._idle_ns:
                    self._distances_ns.setdefault(name, deque(maxlen=self._kept)).append(distance_ns)
                doubled = last[1] and distance_ns < self._double_ns
                self._last[name] = (value, last[1] if doubled else at_ns)

    def refresh_ns(self) -> dict[str, int]:
        """By signal, where enough changes were seen."""
        found = {name: self._period_ns(sorted(distances)) for name, distances in list(self._distances_ns.items())}
        return {name: period_ns for name, period_ns in found.items() if period_ns is not None}

    def _period_ns(self, distances_ns: Sequence[int]) -> int | None:
        """Of ``fewest`` or more within half of the shortest ones; the very shortest of many may be chance."""
        near = [each for each in distances_ns if each < 1.5 * distances_ns[len(distances_ns) // 10]]
        return round(statistics.median(near)) if len(near) >= self._fewest else None


def measure(
    source: Source,
    device: Device,
    clock: Clock,
    *,
    seconds: float = 0.5,
    budget_ratio: float = 0.01,
    dear_ns: int = 1_000_000,
    idle_period_ns: int = FAST_IDLE_NS,
    active_period_ns: int = FAST_ACTIVE_NS,
) -> SamplingPlan:
    """Ask everything a few times and plan by what it cost.

    ``budget_ratio`` is the share of one processor each lane may take on this GPU; a fast signal dearer than ``dear_ns`` is
    asked in the slow lane.  Raises DeviceLostError, SourceGoneError.
    """
    uuid = device.uuid
    until_ns = clock.now_ns() + round(seconds * 1e9)
    costs: dict[str, int] = {}
    silent: set[str] = set()
    for name, lane in SIGNALS.items():
        # The first read of a group costs 0.3-1.8 ms on an H200, because it makes the driver open its page.
        readings = [source.read(uuid, lane, (name,)) for _ in range(2)]
        # A dear one is asked as rarely as can be: energy alone may take 18 ms.
        readings += [source.read(uuid, lane, (name,)) for _ in range(2 if readings[-1].took_ns > dear_ns else 4)]
        # The least: a busy machine, on which benchmarks are prepared, only ever adds to what a call costs.
        costs[name] = min(reading.took_ns for reading in readings[1:])
        if all(getattr(reading, name) is None for reading in readings):
            silent.add(name)
    asked_ns = clock.now_ns()

    fast = tuple(name for name in signals(Lane.FAST) if name not in silent)
    refresh = Refresh(uuid)
    pulse = tuple(name for name in PULSE if name in fast)
    pulse_until_ns = min(until_ns, clock.now_ns() + _PULSE_WATCHED_NS)
    pulse_ns = _watch(source, uuid, Lane.PULSE, pulse, clock, pulse_until_ns, refresh) if pulse else 0
    fast_row_ns = _watch(source, uuid, Lane.FAST, fast, clock, until_ns, refresh)
    # Means over an interval (GPM) had nothing to say, and cost next to nothing, until some time had passed since their
    # first call; one call answers all of them, so they share what it costs.
    if silent:
        # A busy machine may have taken all the time for the first questions: who is asked again too soon would be silent for good.
        clock.wait_until(asked_ns + _MEANS_NS, threading.Event())
        late = source.read(uuid, Lane.SLOW, tuple(sorted(silent)))
        answered = {name for name in silent if getattr(late, name) is not None}
        costs.update({name: late.took_ns // len(answered) for name in answered})
        silent -= answered

    reasons = {name: "this GPU or driver does not answer it" for name in SIGNALS if name in silent - _SOMETIMES_SILENT}
    names = {lane: [name for name in signals(lane) if name not in reasons] for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE)}
    if "sw_thermal_ns" in names[Lane.FAST] and "thermal_violation_ns" in names[Lane.EDGE]:
        # The counters say the same for 2 us; the violation call takes 0.6 ms, and a benchmark waits for its edge.
        names[Lane.EDGE].remove("thermal_violation_ns")
        reasons["thermal_violation_ns"] = "the thermal counters say the same and cost less"
    for name in _too_dear(names[Lane.FAST], costs, dear_ns, round(active_period_ns * budget_ratio)):
        names[Lane.FAST].remove(name)
        names[Lane.SLOW].append(name)
        reasons[name] = f"costs {costs[name] / 1e6:.2f} ms a call, so it is asked in the slow lane"
        fast_row_ns = max(0, fast_row_ns - costs[name])
        pulse_ns = max(0, pulse_ns - costs[name] * (name in pulse))
    names[Lane.PULSE] = [name for name in pulse if name in names[Lane.FAST]]
    rows = {
        Lane.FAST: fast_row_ns,
        Lane.PULSE: pulse_ns,
        Lane.SLOW: sum(costs[name] for name in names[Lane.SLOW]),
        Lane.EDGE: sum(costs[name] for name in names[Lane.EDGE]),
    }
    idle = {Lane.FAST: idle_period_ns, Lane.SLOW: SLOW_IDLE_NS}
    least = {lane: round(rows[lane] / budget_ratio) for lane in (Lane.FAST, Lane.PULSE, Lane.SLOW)}
    pulses = bool(names[Lane.PULSE])
    wanted = {**in_a_window(idle_period_ns, active_period_ns, {}, pulse=pulses), Lane.SLOW: SLOW_ACTIVE_NS}
    active = {**in_a_window(idle_period_ns, active_period_ns, least, pulse=pulses)}
    active[Lane.SLOW] = max(SLOW_ACTIVE_NS, least[Lane.SLOW])
    for lane, wished_ns in wanted.items():
        if least[lane] > wished_ns:
            reasons[lane] = f"a row costs {rows[lane] / 1e6:.2f} ms, so it is asked every {least[lane] / 1e6:.0f} ms at most"
    idle = {lane: max(period_ns, least[lane]) for lane, period_ns in idle.items()}
    return SamplingPlan(
        uuid=uuid,
        names={lane: tuple(of_lane) for lane, of_lane in names.items()},
        idle_period_ns=idle,
        active_period_ns=active,
        least_period_ns=least,
        cost_ns=costs,
        row_cost_ns=rows,
        refresh_ns=refresh.refresh_ns(),
        reasons=reasons,
        unanswered=frozenset(silent - _SOMETIMES_SILENT),
    )


_MEANS_NS = 150_000_000  # an H200 gives no mean over less than 100 ms
_PULSE_WATCHED_NS = 60_000_000  # a dozen readings: what two calls cost after a pause


def _watch(
    source: Source, uuid: str, lane: Lane, names: Sequence[str], clock: Clock, until_ns: int, refresh: Refresh
) -> int:  # fmt: skip
    """Read these signals until the time is up: what a row of them costs, and how often their values change."""
    never = threading.Event()
    step_ns = 5_000_000  # a twentieth of the shortest refresh period of a driver's page
    took: list[int] = []
    names = tuple(names)
    due_ns = clock.now_ns()
    while not took or due_ns < until_ns:
        reading = source.read(uuid, lane, names)
        refresh.observe(reading)
        took.append(reading.took_ns)
        due_ns = max(due_ns + step_ns, clock.now_ns())
        clock.wait_until(due_ns, never)
    return sorted(took)[len(took) // 4]  # of a quiet quarter, as above; after pauses, which is how a lane asks


def _too_dear(names: Sequence[str], costs: Mapping[str, int], dear_ns: int, budget_ns: int, *, times: int = 10) -> list[str]:
    """Fast signals that cost too much for their lane.

    Beside the plainly dear ones: those that would take half of what one pass may cost while being ``times`` dearer than
    their neighbours.  Where every call is dear (no shared page) all stay, and the lane is stretched instead.
    """
    if not names:
        return []
    usual_ns = statistics.median(costs[name] for name in names)
    return [name for name in names if costs[name] > times * usual_ns and costs[name] > min(dear_ns, budget_ns // 2)]
