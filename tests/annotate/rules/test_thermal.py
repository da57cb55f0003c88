"""Tests of the rules about slow-downs by heat, the hardware's protection and a power brake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from annotate.budget import Bound, Number
from annotate.claims import Claim
from annotate.evidence import Reason, Trace
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.thermal import RULES, throttle_hw_slowdown, throttle_power_brake, throttle_thermal
from tests.annotate.builders import DEVICE, Signal, evidence

EVERY_CLAIM = pytest.mark.parametrize("claim", Claim)
NO_HEAT_TIMES: dict[str, Signal] = {"sw_thermal_ns": None, "hw_thermal_ns": None, "thermal_violation_ns": None}
BLIND: dict[str, Signal] = {**NO_HEAT_TIMES, "power_brake_ns": None, "event_reasons_mask": None}


def ask(rule: Rule, claim: Claim = Claim.SUSTAINED, *, length_s: float = 6.0, **signals: Signal) -> Answer:
    return rule.ask(evidence(signals=signals, length_s=length_s), claim)


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    assert answer.severity is Severity.NOTE  # the judge derives the severity from the bounds
    return answer


def bound(answer: Answer, number: Number = Number.MEAN) -> Bound:
    (one,) = (each for each in found(answer).bounds if each.number is number)
    return one


def nearer_ratio(one: Bound) -> float:
    assert one.estimate is not None
    return one.estimate.nearer_ratio


def counts(begin_s: float, end_s: float, *, start_ns: int = 7_000_000) -> Callable[[float], int]:
    return lambda t: start_ns + int(1e9 * max(0.0, min(t, end_s) - begin_s))


def bits(reasons: Reason, begin_s: float, end_s: float) -> Callable[[float], int]:
    return lambda t: int(reasons) if begin_s <= t < end_s else 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@EVERY_CLAIM
def test_cool_copy_is_clear_under_every_claim(rule: Rule, claim: Claim) -> None:
    assert isinstance(rule.ask(evidence(), claim), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_slow_downs_without_counters_and_reasons_are_unobserved(rule: Rule) -> None:
    assert isinstance(ask(rule, **BLIND), Unobserved)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_unreportable_reason_does_not_clear(rule: Rule) -> None:
    """The absence of a reason that the GPU cannot report does not clear a rule."""
    counted = dict.fromkeys(("power_brake_ns", *NO_HEAT_TIMES))
    about = evidence(device=replace(DEVICE, supported_reasons_mask=int(Reason.SW_POWER_CAP)), signals=counted)
    assert isinstance(rule.ask(about, Claim.SUSTAINED), Unobserved)
    every = replace(about, device=replace(DEVICE, supported_reasons_mask=0x1FF))
    assert isinstance(rule.ask(every, Claim.SUSTAINED), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_thermal_without_telemetry_returns_the_absence(rule: Rule) -> None:
    nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
    assert rule.ask(nobody, Claim.SUSTAINED) == Unobserved("no daemon is running")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_power_cap_is_not_a_slow_down(rule: Rule) -> None:
    assert isinstance(ask(rule, event_reasons_mask=int(Reason.SW_POWER_CAP)), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_counters_before_the_window_only_are_clear(rule: Rule) -> None:
    past = counts(-4.0, -2.0)
    answer = ask(rule, sw_thermal_ns=past, hw_thermal_ns=past, power_brake_ns=past, thermal_violation_ns=past)
    assert isinstance(answer, Clear)


class TestThrottleThermal:
    @EVERY_CLAIM
    def test_slowed_half_second_has_its_size(self, claim: Claim) -> None:
        """For 0.5 of 6 s of heat without a reading of the slowed clock, the bound is 22 % of that share."""
        answer = found(ask(throttle_thermal, claim, sw_thermal_ns=counts(2, 2.5), thermal_violation_ns=counts(2, 2.5)))
        assert answer.facts["slowed_s"] == pytest.approx(0.5, abs=0.1)
        assert {each.number for each in answer.bounds} == {Number.THROUGHPUT, Number.MEAN, Number.MEDIAN}
        assert bound(answer).ratio == pytest.approx(0.22 * 0.5 / 6, abs=0.005)

    def test_moment_of_heat_is_bounded_by_a_moment(self) -> None:
        brief = counts(2, 2.004)
        assert bound(ask(throttle_thermal, sw_thermal_ns=brief, thermal_violation_ns=brief)).size_ratio < 0.005

    @EVERY_CLAIM
    def test_hardware_slow_down_is_bounded_and_named(self, claim: Claim) -> None:
        answer = found(ask(throttle_thermal, claim, hw_thermal_ns=counts(2.1, 2.101)))
        assert answer.facts["hardware"] is True
        assert bound(answer).size_ratio > 0.0

    def test_hardware_time_near_the_edge_has_an_estimate_from_zero(self) -> None:
        assert nearer_ratio(bound(ask(throttle_thermal, length_s=6.5, hw_thermal_ns=counts(6.6, 6.8)))) == 0.0

    @pytest.mark.parametrize("reason", [Reason.SW_THERMAL, Reason.HW_THERMAL])
    def test_thermal_reasons_count_without_counters(self, reason: Reason) -> None:
        """Without counters, a sixth of the time by sampled reasons, plus a refresh, counts at 22 %."""
        answer = found(ask(throttle_thermal, **NO_HEAT_TIMES, event_reasons_mask=bits(reason, 2, 3), sm_clock_mhz=None))
        assert bound(answer).ratio == pytest.approx(0.22 * 1.1 / 6, abs=0.005)
        assert answer.facts["hardware"] is (reason is Reason.HW_THERMAL)

    def test_thermal_reasons_need_three_refreshes(self) -> None:
        assert isinstance(ask(throttle_thermal, length_s=0.25, **NO_HEAT_TIMES), Unobserved)

    def test_reset_counter_gives_way_to_the_reasons(self) -> None:
        def reset(t: float) -> int:
            return 9_000_000_000 if t < 3 else 0

        signals: dict[str, Signal] = dict.fromkeys(NO_HEAT_TIMES, reset)
        assert isinstance(ask(throttle_thermal, **signals, event_reasons_mask=bits(Reason.SW_THERMAL, 2, 4)), Found)
        assert isinstance(ask(throttle_thermal, **signals, event_reasons_mask=None), Unobserved)

    def test_heat_bound_is_the_cost_of_the_slowed_clock(self) -> None:
        """Half of the time at three quarters of the clock makes the mean a sixth longer and throughput a seventh lower."""
        answer = found(
            ask(
                throttle_thermal,
                sw_thermal_ns=counts(0, 3),
                thermal_violation_ns=counts(0, 3),
                event_reasons_mask=bits(Reason.SW_THERMAL, 0, 3),
                sm_clock_mhz=lambda t: 1485 if 0 <= t < 3 else 1980,
            )
        )
        mean, rate = bound(answer), bound(answer, Number.THROUGHPUT)
        assert mean.estimate is not None
        assert rate.estimate is not None
        assert mean.estimate.value_ratio == pytest.approx(1 / 6, abs=0.01)
        assert rate.estimate.value_ratio == pytest.approx(-1 / 7, abs=0.01)
        assert nearer_ratio(mean) > 0.15
        assert (answer.facts["inside_mhz"], answer.facts["outside_mhz"]) == (1485.0, 1980.0)

    def test_sentence_names_time_clock_and_temperature(self) -> None:
        signals: dict[str, Signal] = {
            "sw_thermal_ns": counts(0, 3),
            "thermal_violation_ns": counts(0, 3),
            "event_reasons_mask": bits(Reason.SW_THERMAL, 0, 3),
            "sm_clock_mhz": lambda t: 1485 if 0 <= t < 3 else 1980,
            "temperature_c": 88,
        }
        says = throttle_thermal.says.format(**found(ask(throttle_thermal, **signals)).facts)
        assert says == "slowed by heat for 3.00 of 6.0 s, at 1485 MHz instead of 1980 MHz, at up to 88 °C"


class TestThrottleHwSlowdown:
    @EVERY_CLAIM
    def test_bit_without_an_observed_clock_counts_as_halved(self, claim: Claim) -> None:
        """A bit for 0.4 of 6 s, plus two refreshes, counts as at most 0.6 s at half the clock."""
        about = evidence(signals={"event_reasons_mask": bits(Reason.HW_SLOWDOWN, 2, 2.4), "sm_clock_mhz": None})
        assert bound(throttle_hw_slowdown.ask(about, claim)).ratio == pytest.approx(0.6 / 6, abs=0.01)

    def test_hardware_heat_bound_follows_the_slowed_clock(self) -> None:
        """For 1.2 of 6 s at half the clock, the mean is a fifth longer."""
        signals: dict[str, Signal] = {
            "event_reasons_mask": bits(Reason.HW_SLOWDOWN, 2, 3.2),
            "sm_clock_mhz": lambda t: 990 if 2 <= t < 3.2 else 1980,
        }
        mean = bound(ask(throttle_hw_slowdown, **signals))
        assert mean.estimate is not None
        assert mean.estimate.value_ratio == pytest.approx(0.2, abs=0.01)

    def test_reason_throughout_costs_at_most_the_boards_clock(self) -> None:
        """At 1500 of 1980 MHz throughout, the bound is a third, without an estimate."""
        always: dict[str, Signal] = {"event_reasons_mask": int(Reason.HW_SLOWDOWN), "sm_clock_mhz": 1500}
        mean = bound(ask(throttle_hw_slowdown, **always))
        assert mean.ratio == pytest.approx(1980 / 1500 - 1.0, abs=0.01)
        assert mean.estimate is None

    @pytest.mark.parametrize("begin_s", [2.0, 2.05, 2.1])
    def test_single_bit_with_a_steady_clock_costs_nothing(self, begin_s: float) -> None:
        """The bit of one refresh costs nothing if the clock was steady meanwhile."""
        blip = bits(Reason.HW_SLOWDOWN, begin_s, begin_s + 0.1)
        assert bound(ask(throttle_hw_slowdown, event_reasons_mask=blip)).ratio == 0.0

    @pytest.mark.parametrize("name", ["hw_thermal_ns", "power_brake_ns"])
    def test_hardware_counter_counts_as_halved_without_bits(self, name: str) -> None:
        """A counter of 0.1 of 6 s, plus a refresh at either edge, counts at half the clock."""
        signals: dict[str, Signal] = {name: counts(2.1, 2.2)}
        assert bound(ask(throttle_hw_slowdown, **signals)).ratio == pytest.approx(0.3 / 6, abs=0.01)

    def test_hw_slowdown_counters_alone_do_not_clear(self) -> None:
        """Counters alone do not clear the rule, because a fast power trigger has no counter."""
        assert isinstance(ask(throttle_hw_slowdown, event_reasons_mask=None), Unobserved)
        assert isinstance(ask(throttle_hw_slowdown, event_reasons_mask=None, power_brake_ns=counts(2, 3)), Found)

    def test_millisecond_of_a_hardware_counter_is_small(self) -> None:
        mean = bound(ask(throttle_hw_slowdown, hw_thermal_ns=counts(2.1, 2.1009)))
        assert mean.estimate is not None
        assert mean.estimate.value_ratio < 0.001


class TestThrottlePowerBrake:
    @EVERY_CLAIM
    def test_time_under_the_brake_has_its_size(self, claim: Claim) -> None:
        """A brake for 0.3 of 6 s, plus a refresh at either edge, counts at half the clock."""
        answer = found(ask(throttle_power_brake, claim, power_brake_ns=counts(2.1, 2.4)))
        assert answer.facts["slowed_s"] == pytest.approx(0.3, abs=0.1)
        assert bound(answer).ratio == pytest.approx(0.5 / 6, abs=0.01)
        assert nearer_ratio(bound(answer)) > 0.04

    def test_power_brake_reason_counts_without_the_counter(self) -> None:
        signals: dict[str, Signal] = {
            "power_brake_ns": None,
            "event_reasons_mask": bits(Reason.HW_POWER_BRAKE, 2, 2.3),
            "sm_clock_mhz": None,
        }
        assert bound(ask(throttle_power_brake, **signals)).ratio == pytest.approx(0.4 / 6, abs=0.01)

    def test_brake_near_the_edge_has_an_estimate_from_zero(self) -> None:
        assert nearer_ratio(bound(ask(throttle_power_brake, length_s=6.5, power_brake_ns=counts(6.6, 6.8)))) == 0.0
