"""Measurement of one GPU's call costs, and the resulting sampling plan."""

import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from annotate.evidence import SIGNALS, Device, Lane, Reading, signals
from gpuwatch.clock import Signal
from gpuwatch.errors import SourceGoneError
from gpuwatch.interfaces import Clock, Source
from gpuwatch.sampling.plan import PULSE, SLOW_ACTIVE_NS, SLOW_IDLE_NS, PlanTargets, SamplingPlan, in_a_window
from gpuwatch.sampling.refresh import Refresh

# These signals may get a value later, so None at the start does not exclude them.
_SOMETIMES_SILENT = frozenset({"sm_clock_lock_mhz"})
_MEANS_NS = 150_000_000  # GPM needs 100 ms between two samples (docs/HARDWARE.md)
_MEANS_TRIES_COUNT = 3  # the sampler also reads these means, at most once in 100 ms, and so spoils one or two tries
_PULSE_WATCHED_NS = 60_000_000  # a dozen readings, fewer than ``_ROWS_COUNT``, which then decides
_TARGETS = PlanTargets()
_NEVER = threading.Event()
_ROWS_COUNT = 16  # the fewest rows: a single row delayed by a busy machine would lengthen a lane's period for good
_STEP_NS = 5_000_000  # a twentieth of the shortest refresh period of a driver's page
_OUTLYING_COUNT = 10  # multiple of the median cost


@dataclass(slots=True)
class _Costs:
    """Costs measured on one GPU."""

    signals_ns: dict[str, int]
    silent: set[str]
    pulse: tuple[str, ...] = ()
    pulse_ns: int = 0
    row_ns: int = 0


def measure(
    watched: Source, device: Device, clock: Clock, targets: PlanTargets = _TARGETS, *, stop: Signal = _NEVER
) -> SamplingPlan:
    """Read every signal a few times and make a plan from the costs.

    Raises DeviceLostError, SourceGoneError: the latter also once ``stop`` is set.
    """
    source = _Stoppable(watched, stop)
    uuid, refresh = device.uuid, Refresh(device.uuid)
    until_ns = clock.now_ns() + round(targets.measured_s * 1e9)
    costs = _signal_costs(source, uuid, targets.dear_ns)
    read_ns = clock.now_ns()
    fast = tuple(name for name in signals(Lane.FAST) if name not in costs.silent)
    costs.pulse = tuple(name for name in PULSE if name in fast)
    if costs.pulse:
        costs.pulse_ns = _row_ns(source, refresh, clock, Lane.PULSE, costs.pulse, min(until_ns, read_ns + _PULSE_WATCHED_NS))
    costs.row_ns = _row_ns(source, refresh, clock, Lane.FAST, fast, until_ns)
    means = tuple(sorted(costs.silent))
    for _ in range(_MEANS_TRIES_COUNT if means else 0):
        # On a busy machine the first calls may use up the time; a signal read too soon would be left out for good.
        clock.wait_until(read_ns + _MEANS_NS, stop)
        _read_means(source, uuid, costs, means)
        read_ns = clock.now_ns()
    return _planned(uuid, costs, refresh, targets)


class _Stoppable:
    """A source whose readings end once a signal is set: measuring takes a second, and the daemon may stop meanwhile."""

    def __init__(self, source: Source, stop: Signal) -> None:
        self._source = source
        self._stop = stop

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        """Read one row.  Raises SourceGoneError: also once the signal is set."""
        if self._stop.is_set():
            raise SourceGoneError("the daemon stops")
        return self._source.read(uuid, lane, names)


def _signal_costs(source: _Stoppable, uuid: str, dear_ns: int) -> _Costs:
    """Read every signal alone; return the costs, and the signals without a value."""
    costs = _Costs({}, set())
    for name, lane in SIGNALS.items():
        # The first read of a group is slow, because the driver then opens its page.
        readings = [source.read(uuid, lane, (name,)) for _ in range(2)]
        # Read an expensive signal as rarely as possible.
        readings += [source.read(uuid, lane, (name,)) for _ in range(2 if readings[-1].took_ns > dear_ns else 4)]
        # The minimum: a busy machine, common while benchmarks are prepared, only adds to a call's cost.
        costs.signals_ns[name] = min(reading.took_ns for reading in readings[1:])
        if all(getattr(reading, name) is None for reading in readings):
            costs.silent.add(name)
    return costs


def _read_means(source: _Stoppable, uuid: str, costs: _Costs, means: tuple[str, ...]) -> None:
    """Read silent signals once more: means over an interval (GPM) answer some time after their first call.

    One call reads all means, so each gets an equal part of the call's cost.  The cheapest try counts, as for other calls.
    """
    late = source.read(uuid, Lane.SLOW, means)
    answered = {name for name in means if getattr(late, name) is not None}
    for name in answered:
        cost_ns = late.took_ns // len(answered)
        costs.signals_ns[name] = cost_ns if name in costs.silent else min(cost_ns, costs.signals_ns[name])
    costs.silent -= answered


def _row_ns(source: _Stoppable, refresh: Refresh, clock: Clock, lane: Lane, names: tuple[str, ...], until_ns: int) -> int:
    """Read rows as a lane does, until ``until_ns``; return the cost of a row, and learn the refresh periods."""
    took_ns: list[int] = []
    due_ns = clock.now_ns()
    while len(took_ns) < _ROWS_COUNT or due_ns < until_ns:
        reading = source.read(refresh.uuid, lane, names)
        refresh.observe(reading)
        took_ns.append(reading.took_ns)
        due_ns = max(due_ns + _STEP_NS, clock.now_ns())
        clock.wait_until(due_ns, _NEVER)
    return sorted(took_ns)[len(took_ns) // 4]  # the first quartile excludes delays on a busy machine


def _planned(uuid: str, costs: _Costs, refresh: Refresh, targets: PlanTargets) -> SamplingPlan:
    unanswered = frozenset(costs.silent - _SOMETIMES_SILENT)
    names, reasons = _lanes(costs, unanswered, targets)
    rows_ns = {
        Lane.FAST: costs.row_ns,
        Lane.PULSE: costs.pulse_ns,
        Lane.SLOW: sum(costs.signals_ns[name] for name in names[Lane.SLOW]),
        Lane.EDGE: sum(costs.signals_ns[name] for name in names[Lane.EDGE]),
    }
    least_ns = {lane: round(rows_ns[lane] / targets.budget_ratio) for lane in (Lane.FAST, Lane.PULSE, Lane.SLOW)}
    idle_ns, active_ns = targets.idle_period_ns, targets.active_period_ns
    has_pulse = bool(names[Lane.PULSE])
    wanted_ns = {**in_a_window(idle_ns, active_ns, {}, pulse=has_pulse), Lane.SLOW: SLOW_ACTIVE_NS}
    stretched = {lane: least_ns[lane] for lane, period_ns in wanted_ns.items() if least_ns[lane] > period_ns}
    every: dict[str, str] = {
        lane: f"a row costs {rows_ns[lane] / 1e6:.2f} ms, so the daemon reads at most one every {period_ns / 1e6:.0f} ms"
        for lane, period_ns in stretched.items()
    }
    return SamplingPlan(
        uuid=uuid,
        names={lane: tuple(of_lane) for lane, of_lane in names.items()},
        idle_period_ns={Lane.FAST: max(idle_ns, least_ns[Lane.FAST]), Lane.SLOW: max(SLOW_IDLE_NS, least_ns[Lane.SLOW])},
        active_period_ns={
            **in_a_window(idle_ns, active_ns, least_ns, pulse=has_pulse),
            Lane.SLOW: max(SLOW_ACTIVE_NS, least_ns[Lane.SLOW]),
        },
        least_period_ns=least_ns,
        cost_ns=costs.signals_ns,
        row_cost_ns=rows_ns,
        refresh_ns=refresh.refresh_ns(),
        reasons={**reasons, **every},
        unanswered=unanswered,
    )


def _lanes(costs: _Costs, unanswered: frozenset[str], targets: PlanTargets) -> tuple[dict[Lane, list[str]], dict[str, str]]:
    """Return the signals of each lane, and the reasons for drops and moves; reduce the row costs by the moved signals."""
    reasons = {name: "this GPU or driver does not report it" for name in SIGNALS if name in unanswered}
    names = {lane: [name for name in signals(lane) if name not in reasons] for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE)}
    if "sw_thermal_ns" in names[Lane.FAST] and "thermal_violation_ns" in names[Lane.EDGE]:
        names[Lane.EDGE].remove("thermal_violation_ns")
        reasons["thermal_violation_ns"] = "the thermal counters give the same value at less cost"
    for name in _too_expensive(names[Lane.FAST], costs.signals_ns, targets):
        cost_ns = costs.signals_ns[name]
        names[Lane.FAST].remove(name)
        names[Lane.SLOW].append(name)
        reasons[name] = f"costs {cost_ns / 1e6:.2f} ms per call, so it moves to the slow lane"
        costs.row_ns = max(0, costs.row_ns - cost_ns)
        costs.pulse_ns = max(0, costs.pulse_ns - cost_ns * (name in costs.pulse))
    names[Lane.PULSE] = [name for name in costs.pulse if name in names[Lane.FAST]]
    return names, reasons


def _too_expensive(names: Sequence[str], costs_ns: Mapping[str, int], targets: PlanTargets) -> list[str]:
    """Return fast signals that cost too much for their lane.

    Such a signal costs more than ``_OUTLYING_COUNT`` times the median, and more than the smaller of ``dear_ns`` and half of
    a pass's budget.
    If every call is expensive (no shared page), all signals stay, and the lane gets a longer period.
    """
    if not names:
        return []
    usual_ns = statistics.median(costs_ns[name] for name in names)
    most_ns = min(targets.dear_ns, round(targets.active_period_ns * targets.budget_ratio) // 2)
    return [name for name in names if costs_ns[name] > max(_OUTLYING_COUNT * usual_ns, most_ns)]
