"""When heat, or the hardware's own protection, slowed the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

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
    return answer


def counts(begin_s: float, end_s: float, *, start_ns: int = 7_000_000) -> Callable[[float], int]:
    """A counter of nanoseconds that runs from one second to another."""
    return lambda t: start_ns + int(1e9 * max(0.0, min(t, end_s) - begin_s))


def bits(reasons: Reason, begin_s: float, end_s: float) -> Callable[[float], int]:
    return lambda t: int(reasons) if begin_s <= t < end_s else 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@EVERY_CLAIM
def test_a_cool_copy_is_clear_under_every_claim(rule: Rule, claim: Claim) -> None:
    assert isinstance(rule.ask(evidence(), claim), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_with_neither_counters_nor_reasons_it_is_unobserved(rule: Rule) -> None:
    assert isinstance(ask(rule, **BLIND), Unobserved)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_thermal_unreportable_reason_clears_nothing(rule: Rule) -> None:
    """A reason the GPU cannot report clears nothing by its silence."""
    counted = dict.fromkeys(("power_brake_ns", *NO_HEAT_TIMES))
    about = evidence(device=replace(DEVICE, supported_reasons_mask=int(Reason.SW_POWER_CAP)), signals=counted)
    assert isinstance(rule.ask(about, Claim.SUSTAINED), Unobserved)
    every = replace(about, device=replace(DEVICE, supported_reasons_mask=0x1FF))
    assert isinstance(rule.ask(every, Claim.SUSTAINED), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_without_telemetry_the_reason_for_its_absence_is_given(rule: Rule) -> None:
    nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
    assert rule.ask(nobody, Claim.SUSTAINED) == Unobserved("no daemon is running")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_power_cap_is_no_slow_down(rule: Rule) -> None:
    assert isinstance(ask(rule, event_reasons_mask=int(Reason.SW_POWER_CAP)), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_counters_that_ran_before_the_window_only_are_clear(rule: Rule) -> None:
    past = counts(-4.0, -2.0)
    answer = ask(rule, sw_thermal_ns=past, hw_thermal_ns=past, power_brake_ns=past, thermal_violation_ns=past)
    assert isinstance(answer, Clear)


class TestThrottleThermal:
    @EVERY_CLAIM
    def test_more_than_a_hundredth_of_the_time_is_rejected(self, claim: Claim) -> None:
        answer = found(ask(throttle_thermal, claim, sw_thermal_ns=counts(2, 2.5), thermal_violation_ns=counts(2, 2.5)))
        assert answer.severity is Severity.REJECT
        assert answer.facts["slowed_s"] == pytest.approx(0.5, abs=0.1)

    def test_less_than_a_hundredth_is_a_flag(self) -> None:
        answer = found(ask(throttle_thermal, sw_thermal_ns=counts(2, 2.03), thermal_violation_ns=counts(2, 2.03)))
        assert answer.severity is Severity.FLAG

    def test_a_thousandth_or_less_is_nothing(self) -> None:
        brief = counts(2, 2.004)
        assert isinstance(ask(throttle_thermal, sw_thermal_ns=brief, thermal_violation_ns=brief), Clear)

    @EVERY_CLAIM
    def test_thermal_hardware_slowdown_is_rejected(self, claim: Claim) -> None:
        """Any time slowed by hardware inside the window is rejected."""
        answer = found(ask(throttle_thermal, claim, hw_thermal_ns=counts(2.1, 2.101)))
        assert (answer.severity, answer.facts["hardware"]) == (Severity.REJECT, True)

    def test_hardware_time_that_may_lie_beyond_the_edge_only_flags(self) -> None:
        answer = found(ask(throttle_thermal, length_s=6.5, hw_thermal_ns=counts(6.6, 6.8)))
        assert answer.severity is Severity.FLAG

    @pytest.mark.parametrize("reason", [Reason.SW_THERMAL, Reason.HW_THERMAL])
    def test_where_no_counter_is_the_reasons_tell(self, reason: Reason) -> None:
        answer = found(ask(throttle_thermal, **NO_HEAT_TIMES, event_reasons_mask=bits(reason, 2, 3)))
        assert answer.severity is Severity.REJECT
        assert answer.facts["hardware"] is (reason is Reason.HW_THERMAL)

    def test_thermal_reasons_need_three_refreshes(self) -> None:
        """Reasons say nothing of a window shorter than three refreshes."""
        assert isinstance(ask(throttle_thermal, length_s=0.25, **NO_HEAT_TIMES), Unobserved)

    def test_a_counter_set_back_gives_way_to_the_reasons(self) -> None:
        def reset(t: float) -> int:
            return 9_000_000_000 if t < 3 else 0

        signals: dict[str, Signal] = dict.fromkeys(NO_HEAT_TIMES, reset)
        assert isinstance(ask(throttle_thermal, **signals, event_reasons_mask=bits(Reason.SW_THERMAL, 2, 4)), Found)
        assert isinstance(ask(throttle_thermal, **signals, event_reasons_mask=None), Unobserved)

    def test_the_effect_is_what_the_slowed_clock_costs(self) -> None:
        answer = found(
            ask(
                throttle_thermal,
                sw_thermal_ns=counts(0, 3),
                thermal_violation_ns=counts(0, 3),
                event_reasons_mask=bits(Reason.SW_THERMAL, 0, 3),
                sm_clock_mhz=lambda t: 1485 if 0 <= t < 3 else 1980,
            )
        )
        # Half of the time at three quarters of the clock.
        assert answer.effect_ratio == pytest.approx(1 / 0.875 - 1, abs=0.01)

    def test_the_sentence_names_time_and_temperature(self) -> None:
        signals: dict[str, Signal] = {"sw_thermal_ns": counts(0, 9), "thermal_violation_ns": counts(0, 9), "temperature_c": 88}
        says = throttle_thermal.says.format(**found(ask(throttle_thermal, **signals)).facts)
        assert says == "slowed by heat for 6.00 of 6.0 s, at up to 88 °C"


class TestThrottleHwSlowdown:
    @EVERY_CLAIM
    def test_the_bit_in_several_refreshes_is_rejected(self, claim: Claim) -> None:
        answer = found(ask(throttle_hw_slowdown, claim, event_reasons_mask=bits(Reason.HW_SLOWDOWN, 2, 2.4)))
        assert answer.severity is Severity.REJECT

    @pytest.mark.parametrize("begin_s", [2.0, 2.05, 2.1])
    def test_a_blip_of_one_refresh_at_a_change_of_clocks_is_nothing(self, begin_s: float) -> None:
        blip = bits(Reason.HW_SLOWDOWN, begin_s, begin_s + 0.1)
        assert isinstance(ask(throttle_hw_slowdown, event_reasons_mask=blip), Clear)

    @pytest.mark.parametrize("name", ["hw_thermal_ns", "power_brake_ns"])
    def test_thermal_hardware_counter_is_rejected(self, name: str) -> None:
        """A hardware counter by more than a millisecond is rejected."""
        signals: dict[str, Signal] = {name: counts(2.1, 2.2)}
        assert found(ask(throttle_hw_slowdown, **signals)).severity is Severity.REJECT

    def test_hw_slowdown_counters_alone_clear_nothing(self) -> None:
        """Counters alone clear nothing because a fast power trigger has none."""
        assert isinstance(ask(throttle_hw_slowdown, event_reasons_mask=None), Unobserved)
        assert isinstance(ask(throttle_hw_slowdown, event_reasons_mask=None, power_brake_ns=counts(2, 3)), Found)

    def test_a_millisecond_of_a_hardware_counter_is_nothing(self) -> None:
        assert isinstance(ask(throttle_hw_slowdown, hw_thermal_ns=counts(2.1, 2.1009)), Clear)


class TestThrottlePowerBrake:
    @EVERY_CLAIM
    def test_time_under_the_brake_is_rejected(self, claim: Claim) -> None:
        answer = found(ask(throttle_power_brake, claim, power_brake_ns=counts(2.1, 2.4)))
        assert answer.severity is Severity.REJECT
        assert answer.facts["slowed_s"] == pytest.approx(0.3, abs=0.1)

    def test_where_the_counter_is_not_there_the_reason_tells(self) -> None:
        signals: dict[str, Signal] = {"power_brake_ns": None, "event_reasons_mask": bits(Reason.HW_POWER_BRAKE, 2, 2.3)}
        assert found(ask(throttle_power_brake, **signals)).severity is Severity.REJECT

    def test_a_brake_that_may_lie_beyond_the_edge_only_flags(self) -> None:
        answer = found(ask(throttle_power_brake, length_s=6.5, power_brake_ns=counts(6.6, 6.8)))
        assert answer.severity is Severity.FLAG
