"""Tests of the plan of a GPU's lanes: measured costs, periods within the budget, and refresh periods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import SIGNALS, Lane, Reading, signals
from gpuwatch.clock import VirtualClock
from gpuwatch.sampling.measure import measure
from gpuwatch.sampling.plan import (
    FAST_ACTIVE_NS,
    FAST_IDLE_NS,
    PULSE,
    ROW_NS,
    SLOW_ACTIVE_NS,
    PlanTargets,
    SamplingPlan,
    in_a_window,
    unmeasured,
)
from gpuwatch.sampling.refresh import Refresh
from gpuwatch.sources.simulated import Simulated
from tests.examples import share_of
from tests.gpuwatch.scripted import DEVICE, FAST, UUID, Scripted, every, silent

MS = 1_000_000


def plan_of(seconds: float = 0.5, **settings_of: Any) -> SamplingPlan:
    clock = VirtualClock()
    return measure(Scripted(clock, **settings_of), DEVICE, clock, PlanTargets(measured_s=seconds))


def test_cheap_signals_stay_in_their_lanes_at_full_rate() -> None:
    plan = plan_of()
    assert {lane: set(names) for lane, names in plan.names.items()} == {
        **{lane: set(signals(lane)) - {"thermal_violation_ns"} for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE)},
        Lane.PULSE: set(PULSE),
    }
    assert plan.active_period_ns[Lane.PULSE] == FAST_ACTIVE_NS
    assert plan.active_period_ns[Lane.FAST] == ROW_NS
    assert plan.idle_period_ns[Lane.FAST] == FAST_IDLE_NS
    assert set(plan.reasons) == {"thermal_violation_ns"}
    assert plan.cost_ns["sm_clock_mhz"] == 1000


def test_plan_reads_a_costly_fast_signal_in_the_slow_lane() -> None:
    """A fast signal that costs 2 ms is read in the slow lane, and the plan gives the reason."""
    plan = plan_of(costs_ns={"sw_thermal_ns": 2 * MS})
    assert "sw_thermal_ns" not in plan.names[Lane.FAST]
    assert "sw_thermal_ns" in plan.names[Lane.SLOW]
    assert "2.00 ms" in plan.reasons["sw_thermal_ns"]
    assert plan.active_period_ns[Lane.PULSE] == FAST_ACTIVE_NS
    assert plan.active_period_ns[Lane.FAST] == ROW_NS


def test_plan_moves_a_signal_that_exceeds_the_budget() -> None:
    """A signal that would exceed the lane's budget moves to the slow lane, even below a millisecond."""
    plan = plan_of(costs_ns={"sync_boost_ns": 600_000})
    assert "sync_boost_ns" in plan.names[Lane.SLOW]
    assert plan.active_period_ns[Lane.PULSE] == FAST_ACTIVE_NS
    assert plan.active_period_ns[Lane.FAST] == ROW_NS


def test_plan_lengthens_periods_if_every_call_is_slow() -> None:
    """If every call is expensive, all signals stay, and the lane's period grows until the calls fit the budget."""
    plan = plan_of(usual_cost_ns=100_000)  # a driver without a shared page
    assert set(plan.names[Lane.FAST]) == set(FAST)
    row_ns = 100_000 * len(FAST)
    assert plan.active_period_ns[Lane.FAST] == row_ns * 100 == plan.least_period_ns[Lane.FAST]
    assert plan.idle_period_ns[Lane.FAST] == row_ns * 100
    assert "the daemon reads at most one every 120 ms" in plan.reasons[Lane.FAST]


def test_plan_keeps_the_pulse_if_every_call_is_slow() -> None:
    """If every call is expensive, the pulse's period grows to 20 ms, and the plan gives the reason."""
    plan = plan_of(usual_cost_ns=100_000)
    assert plan.active_period_ns[Lane.PULSE] == 2 * 100_000 * 100
    assert "the daemon reads at most one every 20 ms" in plan.reasons[Lane.PULSE]


def test_pulse_holds_the_answered_fast_signals() -> None:
    """The pulse holds the pulse signals that this GPU answers in the fast lane."""
    assert plan_of(values={"event_reasons_mask": silent}).names[Lane.PULSE] == ("sm_clock_mhz",)
    assert plan_of(costs_ns={"sm_clock_mhz": 2 * MS}).names[Lane.PULSE] == ("event_reasons_mask",)
    without = plan_of(values=dict.fromkeys(PULSE, silent))
    assert without.names[Lane.PULSE] == ()
    assert Lane.PULSE not in without.active_period_ns
    assert without.active_period_ns[Lane.FAST] == FAST_ACTIVE_NS  # no reason to read the rest more rarely


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.booleans())
def test_window_keeps_each_lane_within_its_periods(
    idle_ns: int, active_ns: int, least_row_ns: int, least_pulse_ns: int, pulse: bool
) -> None:
    """In a window no period is shorter than configured and allowed, and the pulse's is shorter than the rows'."""
    least = {Lane.FAST: least_row_ns, Lane.PULSE: least_pulse_ns}
    found = in_a_window(idle_ns, active_ns, least, pulse=pulse)
    assert all(period_ns >= max(active_ns, least[lane]) for lane, period_ns in found.items())
    assert found[Lane.FAST] <= max(active_ns, least_row_ns, ROW_NS)
    assert found[Lane.FAST] <= max(active_ns, least_row_ns, idle_ns)
    assert found.get(Lane.PULSE, 0) < found[Lane.FAST]


def test_plan_lengthens_the_period_of_the_slow_lane_too() -> None:
    plan = plan_of(costs_ns={"energy_j": 18 * MS})
    assert 1.7 * SLOW_ACTIVE_NS < plan.active_period_ns[Lane.SLOW] < 1.9 * SLOW_ACTIVE_NS
    assert Lane.SLOW in plan.reasons


def test_plan_drops_signals_that_never_answer() -> None:
    """Signals without a value are dropped, except a clock lock, which may come later."""
    plan = plan_of(values={"sync_boost_ns": silent, "energy_j": silent, "sm_clock_lock_mhz": silent})
    named = {name for names in plan.names.values() for name in names}
    assert named == set(SIGNALS) - {"sync_boost_ns", "energy_j", "thermal_violation_ns"}
    assert plan.reasons["energy_j"] == "this GPU or driver does not report it"


def test_thermal_time_is_read_only_without_a_counter() -> None:
    """The expensive thermal violation time is read only without ``sw_thermal_ns``."""
    assert "thermal_violation_ns" not in plan_of().names[Lane.EDGE]
    assert "thermal_violation_ns" in plan_of(values={"sw_thermal_ns": silent}).names[Lane.EDGE]


@pytest.mark.parametrize("seconds", [0.5, 0.0])  # a busy machine needs the whole time for the first queries
def test_signal_that_answers_late_is_not_dropped(seconds: float) -> None:
    clock = VirtualClock()
    begin_ns = clock.now_ns()

    def later(now_ns: int) -> float | None:
        return 0.5 if now_ns - begin_ns > 100 * MS else None

    plan = measure(Scripted(clock, values={"sm_activity_ratio": later}), DEVICE, clock, PlanTargets(measured_s=seconds))
    assert "sm_activity_ratio" in plan.names[Lane.SLOW]


def test_cost_leaves_out_the_first_read() -> None:
    """The cost leaves out the first read, which opens the driver's page."""
    clock = VirtualClock()
    source = Scripted(clock)
    first = dict.fromkeys(SIGNALS, True)
    plain = source.read

    def slow_at_first(uuid: str, lane: Lane, names: Any) -> Reading:
        is_slow = len(names) == 1 and first.pop(names[0], False)
        source.usual_cost_ns = 1_800_000 if is_slow else 1000
        return plain(uuid, lane, names)

    source.read = slow_at_first  # type: ignore[method-assign]
    plan = measure(source, DEVICE, clock)
    assert set(plan.cost_ns.values()) == {1000}


def test_single_delayed_row_does_not_lengthen_periods() -> None:
    """A single row with 10 ms per signal, as on a busy machine, does not lengthen the periods."""
    clock = VirtualClock()
    source = Scripted(clock)
    held_up = dict.fromkeys((Lane.FAST, Lane.PULSE), True)
    plain = source.read

    def late_at_first(uuid: str, lane: Lane, names: Any) -> Reading:
        source.usual_cost_ns = 10 * MS if len(names) > 1 and held_up.pop(lane, False) else 1000
        return plain(uuid, lane, names)

    source.read = late_at_first  # type: ignore[method-assign]
    plan = measure(source, DEVICE, clock, PlanTargets(measured_s=0.0))
    assert plan.idle_period_ns[Lane.FAST] == FAST_IDLE_NS
    assert plan.active_period_ns[Lane.PULSE] == FAST_ACTIVE_NS


def test_single_delayed_mean_does_not_lengthen_periods() -> None:
    """One delayed call for means, during the measurement of other GPUs, does not lengthen a lane's period."""
    clock = VirtualClock()
    begin_ns = clock.now_ns()
    source = Scripted(clock)
    answers = [90 * MS, 1000, 1000]

    def held_up_at_first(now_ns: int) -> float | None:
        if now_ns - begin_ns <= 100 * MS:
            return None
        source.usual_cost_ns = answers.pop(0)
        return 0.5

    source.values = {"sm_activity_ratio": held_up_at_first}
    plain = source.read

    def read(uuid: str, lane: Lane, names: Any) -> Reading:
        reading = plain(uuid, lane, names)
        cost_ns, source.usual_cost_ns = source.usual_cost_ns, 1000
        return replace(reading, took_ns=cost_ns) if reading.sm_activity_ratio is not None else reading

    source.read = read  # type: ignore[method-assign]
    plan = measure(source, DEVICE, clock)
    assert plan.cost_ns["sm_activity_ratio"] == 1000
    assert plan.active_period_ns[Lane.SLOW] == SLOW_ACTIVE_NS


def test_measurement_finds_refresh_periods() -> None:
    plan = plan_of(seconds=1.0, values={"power_w": every(100 * MS), "power_cap_ns": every(200 * MS)})
    assert plan.refresh_ns["power_w"] == pytest.approx(100 * MS, rel=0.06)
    assert plan.refresh_ns["power_cap_ns"] == pytest.approx(200 * MS, rel=0.06)
    assert "temperature_c" not in plan.refresh_ns  # the temperature never changed


def test_measurement_takes_its_configured_time() -> None:
    clock = VirtualClock()
    begin_ns = clock.now_ns()
    measure(Scripted(clock, takes_time=True), DEVICE, clock, PlanTargets(measured_s=0.5))
    assert 0.45e9 < clock.now_ns() - begin_ns < 0.6e9


def test_simulated_gpu_is_measured_like_a_real_one() -> None:
    clock = VirtualClock()
    source = Simulated(None, clock)
    device = source.devices()[0]
    plan = measure(source, device, clock)
    assert plan.uuid == device.uuid
    assert set(plan.names[Lane.FAST]) == set(FAST)
    assert "energy_j" in plan.names[Lane.SLOW]


def test_unmeasured_gpu_reads_each_signal_in_its_own_lane() -> None:
    plan = unmeasured(DEVICE, 40 * MS, 20 * MS)
    assert plan.names[Lane.FAST] == FAST
    assert plan.idle_period_ns[Lane.FAST] == 40 * MS
    assert plan.active_period_ns[Lane.FAST] == 40 * MS
    assert plan.active_period_ns[Lane.PULSE] == 20 * MS
    assert plan.reasons
    assert not plan.is_measured


def rows(times_ms: list[float], values: list[float]) -> Refresh:
    refresh = Refresh(UUID)
    for at_ms, value in zip(times_ms, values, strict=True):
        refresh.observe(Reading(uuid=UUID, lane=Lane.FAST, at_ns=10**12 + round(at_ms * MS), took_ns=0, power_w=value))
    return refresh


@settings(max_examples=share_of(40))
@given(period_ms=st.sampled_from([100, 200, 500]), step_ms=st.sampled_from([5, 10, 50]), phase_ms=st.integers(0, 40))
def test_refresh_period_is_found_at_any_rate_and_phase(period_ms: int, step_ms: int, phase_ms: int) -> None:
    times = [float(phase_ms + step_ms * i) for i in range(6000 // step_ms)]
    found = rows(times, [t // period_ms for t in times]).refresh_ns()
    assert found["power_w"] == pytest.approx(period_ms * MS, abs=step_ms * MS)


def test_refresh_ignores_flicker_while_the_driver_writes() -> None:
    times = [float(i) for i in range(3000)]
    values = [t // 100 + (0.5 if t % 100 == 2 else 0.0) for t in times]  # changes back after a millisecond
    assert rows(times, values).refresh_ns()["power_w"] == pytest.approx(100 * MS, rel=0.05)


def test_refresh_is_found_in_a_mostly_constant_value() -> None:
    times = [10.0 * i for i in range(2000)]
    # Changes for one refresh, like those of an unlimited clock, with pauses of two to seven refreshes.
    edges = {0}
    while max(edges) < 200:
        edges |= {max(edges) + 2 + len(edges) % 6, max(edges) + 3 + len(edges) % 6}
    values = [float(sum(edge <= t // 100 for edge in edges)) for t in times]
    assert rows(times, values).refresh_ns()["power_w"] == pytest.approx(100 * MS, rel=0.05)


def test_rarely_changing_value_shows_no_period() -> None:
    times = [10.0 * i for i in range(2000)]
    assert rows(times, [t // 5000 for t in times]).refresh_ns() == {}


def test_changes_across_gaps_in_readings_are_ignored() -> None:
    times = [300.0 * i for i in range(50)]
    assert rows(times, times).refresh_ns() == {}


def test_refresh_of_rarely_read_signals_ignores_pulses() -> None:
    """Pulses in between do not bridge the gaps of rarely read signals."""
    refresh = Refresh(UUID)
    for i in range(2000):
        lane, power_w = (Lane.PULSE, None) if i % 30 else (Lane.FAST, float(i))
        at_ns, clock_mhz = 10**12 + i * 10 * MS, 1000 + i // 10 % 7
        refresh.observe(Reading(uuid=UUID, lane=lane, at_ns=at_ns, took_ns=0, power_w=power_w, sm_clock_mhz=clock_mhz))
    assert refresh.refresh_ns() == {"sm_clock_mhz": 100 * MS}


def test_refresh_ignores_readings_of_another_gpu() -> None:
    refresh = Refresh(UUID)
    for i in range(100):
        refresh.observe(Reading(uuid="GPU-other", lane=Lane.FAST, at_ns=10**12 + i * 100 * MS, took_ns=0, power_w=float(i)))
    assert refresh.refresh_ns() == {}
