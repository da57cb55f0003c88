from __future__ import annotations

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


def test_a_fast_signal_that_costs_more_than_a_millisecond_is_asked_in_the_slow_lane_and_the_plan_says_why() -> None:
    plan = plan_of(costs_ns={"sw_thermal_ns": 2 * MS})
    assert "sw_thermal_ns" not in plan.names[Lane.FAST]
    assert "sw_thermal_ns" in plan.names[Lane.SLOW]
    assert "2.00 ms" in plan.reasons["sw_thermal_ns"]
    assert plan.active_period_ns[Lane.PULSE] == FAST_ACTIVE_NS
    assert plan.active_period_ns[Lane.FAST] == ROW_NS


def test_one_signal_that_would_eat_the_lanes_budget_moves_though_it_is_below_a_millisecond() -> None:
    plan = plan_of(costs_ns={"sync_boost_ns": 600_000})
    assert "sync_boost_ns" in plan.names[Lane.SLOW]
    assert plan.active_period_ns[Lane.PULSE] == FAST_ACTIVE_NS
    assert plan.active_period_ns[Lane.FAST] == ROW_NS


def test_where_every_call_is_dear_all_stay_and_the_lane_is_stretched_to_the_budget() -> None:
    plan = plan_of(usual_cost_ns=100_000)  # a driver without a shared page
    assert set(plan.names[Lane.FAST]) == set(FAST)
    row_ns = 100_000 * len(FAST)
    assert plan.active_period_ns[Lane.FAST] == row_ns * 100 == plan.least_period_ns[Lane.FAST]
    assert plan.idle_period_ns[Lane.FAST] == row_ns * 100
    assert "is asked every 120 ms at most" in plan.reasons[Lane.FAST]


def test_where_every_call_is_dear_the_pulse_goes_on_while_whole_rows_grow_rare() -> None:
    plan = plan_of(usual_cost_ns=100_000)
    assert plan.active_period_ns[Lane.PULSE] == 2 * 100_000 * 100
    assert "is asked every 20 ms at most" in plan.reasons[Lane.PULSE]


def test_what_is_in_the_pulse_is_what_this_gpu_answers_in_the_fast_lane() -> None:
    assert plan_of(values={"event_reasons_mask": silent}).names[Lane.PULSE] == ("sm_clock_mhz",)
    assert plan_of(costs_ns={"sm_clock_mhz": 2 * MS}).names[Lane.PULSE] == ("event_reasons_mask",)
    without = plan_of(values=dict.fromkeys(PULSE, silent))
    assert without.names[Lane.PULSE] == ()
    assert Lane.PULSE not in without.active_period_ns
    assert without.active_period_ns[Lane.FAST] == FAST_ACTIVE_NS  # no reason to ask the rest more rarely


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.booleans())
def test_a_window_asks_no_lane_more_often_than_wished_or_allowed_and_none_too_rarely(
    idle_ns: int, active_ns: int, least_row_ns: int, least_pulse_ns: int, pulse: bool
) -> None:
    least = {Lane.FAST: least_row_ns, Lane.PULSE: least_pulse_ns}
    found = in_a_window(idle_ns, active_ns, least, pulse=pulse)
    assert all(period_ns >= max(active_ns, least[lane]) for lane, period_ns in found.items())
    assert found[Lane.FAST] <= max(active_ns, least_row_ns, ROW_NS)
    assert found[Lane.FAST] <= max(active_ns, least_row_ns, idle_ns)
    assert found.get(Lane.PULSE, 0) < found[Lane.FAST]


def test_a_slow_lane_beyond_its_budget_is_stretched_too() -> None:
    plan = plan_of(costs_ns={"energy_j": 18 * MS})
    assert 1.7 * SLOW_ACTIVE_NS < plan.active_period_ns[Lane.SLOW] < 1.9 * SLOW_ACTIVE_NS
    assert Lane.SLOW in plan.reasons


def test_what_never_answers_is_dropped_and_a_lock_that_may_come_is_not() -> None:
    plan = plan_of(values={"sync_boost_ns": silent, "energy_j": silent, "sm_clock_lock_mhz": silent})
    named = {name for names in plan.names.values() for name in names}
    assert named == set(SIGNALS) - {"sync_boost_ns", "energy_j", "thermal_violation_ns"}
    assert plan.reasons["energy_j"] == "this GPU or driver does not answer it"


def test_the_dear_thermal_time_is_asked_at_edges_only_where_no_counter_says_it() -> None:
    assert "thermal_violation_ns" not in plan_of().names[Lane.EDGE]
    assert "thermal_violation_ns" in plan_of(values={"sw_thermal_ns": silent}).names[Lane.EDGE]


@pytest.mark.parametrize("seconds", [0.5, 0.0])  # a busy machine takes all of it for the first questions
def test_what_answers_only_after_a_while_is_not_dropped(seconds: float) -> None:
    clock = VirtualClock()
    begin_ns = clock.now_ns()

    def later(now_ns: int) -> float | None:
        return 0.5 if now_ns - begin_ns > 100 * MS else None

    plan = measure(Scripted(clock, values={"sm_activity_ratio": later}), DEVICE, clock, PlanTargets(measured_s=seconds))
    assert "sm_activity_ratio" in plan.names[Lane.SLOW]


def test_the_first_read_does_not_count_because_it_opens_the_drivers_page() -> None:
    clock = VirtualClock()
    source = Scripted(clock)
    first = dict.fromkeys(SIGNALS, True)
    plain = source.read

    def slow_at_first(uuid: str, lane: Lane, names: Any) -> Reading:
        dear = len(names) == 1 and first.pop(names[0], False)
        source.usual_cost_ns = 1_800_000 if dear else 1000
        return plain(uuid, lane, names)

    source.read = slow_at_first  # type: ignore[method-assign]
    plan = measure(source, DEVICE, clock)
    assert set(plan.cost_ns.values()) == {1000}


def test_refresh_periods_are_seen_while_measuring() -> None:
    plan = plan_of(seconds=1.0, values={"power_w": every(100 * MS), "power_cap_ns": every(200 * MS)})
    assert plan.refresh_ns["power_w"] == pytest.approx(100 * MS, rel=0.06)
    assert plan.refresh_ns["power_cap_ns"] == pytest.approx(200 * MS, rel=0.06)
    assert "temperature_c" not in plan.refresh_ns  # it never changed, which tells nothing


def test_measuring_takes_its_time_and_no_more() -> None:
    clock = VirtualClock()
    begin_ns = clock.now_ns()
    measure(Scripted(clock, takes_time=True), DEVICE, clock, PlanTargets(measured_s=0.5))
    assert 0.45e9 < clock.now_ns() - begin_ns < 0.6e9


def test_the_simulated_gpu_is_measured_like_any_other() -> None:
    clock = VirtualClock()
    source = Simulated(None, clock)
    device = source.devices()[0]
    plan = measure(source, device, clock)
    assert plan.uuid == device.uuid
    assert set(plan.names[Lane.FAST]) == set(FAST)
    assert "energy_j" in plan.names[Lane.SLOW]


def test_a_gpu_that_could_not_be_measured_is_asked_everything_in_its_own_lane() -> None:
    plan = unmeasured(DEVICE, 40 * MS, 20 * MS)
    assert plan.names[Lane.FAST] == FAST
    assert plan.idle_period_ns[Lane.FAST] == 40 * MS
    assert plan.active_period_ns[Lane.FAST] == 40 * MS
    assert plan.active_period_ns[Lane.PULSE] == 20 * MS
    assert plan.reasons


def rows(times_ms: list[float], values: list[float]) -> Refresh:
    refresh = Refresh(UUID)
    for at_ms, value in zip(times_ms, values, strict=True):
        refresh.observe(Reading(uuid=UUID, lane=Lane.FAST, at_ns=10**12 + round(at_ms * MS), took_ns=0, power_w=value))
    return refresh


@settings(max_examples=40)
@given(period_ms=st.sampled_from([100, 200, 500]), step_ms=st.sampled_from([5, 10, 50]), phase_ms=st.integers(0, 40))
def test_the_period_is_found_at_any_sampling_rate_and_phase(period_ms: int, step_ms: int, phase_ms: int) -> None:
    times = [float(phase_ms + step_ms * i) for i in range(6000 // step_ms)]
    found = rows(times, [t // period_ms for t in times]).refresh_ns()
    assert found["power_w"] == pytest.approx(period_ms * MS, abs=step_ms * MS)


def test_a_value_that_flickers_while_the_driver_writes_does_not_shorten_the_period() -> None:
    times = [float(i) for i in range(3000)]
    values = [t // 100 + (0.5 if t % 100 == 2 else 0.0) for t in times]  # changes back within two milliseconds
    assert rows(times, values).refresh_ns()["power_w"] == pytest.approx(100 * MS, rel=0.05)


def test_a_value_that_mostly_stands_tells_the_refresh_all_the_same() -> None:
    times = [10.0 * i for i in range(2000)]
    # Blips of one refresh, as of a clock that nothing limits, between stretches of two to seven refreshes.
    edges = {0}
    while max(edges) < 200:
        edges |= {max(edges) + 2 + len(edges) % 6, max(edges) + 3 + len(edges) % 6}
    values = [float(sum(edge <= t // 100 for edge in edges)) for t in times]
    assert rows(times, values).refresh_ns()["power_w"] == pytest.approx(100 * MS, rel=0.05)


def test_an_idle_value_tells_nothing() -> None:
    times = [10.0 * i for i in range(2000)]
    assert rows(times, [t // 5000 for t in times]).refresh_ns() == {}


def test_changes_across_a_hole_in_the_readings_are_not_counted() -> None:
    times = [300.0 * i for i in range(50)]
    assert rows(times, times).refresh_ns() == {}


def test_pulses_between_do_not_close_the_holes_of_what_is_asked_more_rarely() -> None:
    refresh = Refresh(UUID)
    for i in range(2000):
        lane, power_w = (Lane.PULSE, None) if i % 30 else (Lane.FAST, float(i))
        at_ns, clock_mhz = 10**12 + i * 10 * MS, 1000 + i // 10 % 7
        refresh.observe(Reading(uuid=UUID, lane=lane, at_ns=at_ns, took_ns=0, power_w=power_w, sm_clock_mhz=clock_mhz))
    assert refresh.refresh_ns() == {"sm_clock_mhz": 100 * MS}


def test_readings_of_another_gpu_are_passed_over() -> None:
    refresh = Refresh(UUID)
    for i in range(100):
        refresh.observe(Reading(uuid="GPU-other", lane=Lane.FAST, at_ns=10**12 + i * 100 * MS, took_ns=0, power_w=float(i)))
    assert refresh.refresh_ns() == {}
