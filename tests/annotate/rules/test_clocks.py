"""Drifts and swings, ramps from idle, and memory below its clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from annotate.claims import Claim
from annotate.evidence import Evidence, Gap
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.clocks import RULES, clock_drift, clock_ramp, mem_clock_change
from tests.annotate.builders import BEGIN_NS, DEVICE, Signal, evidence
from tests.examples import share_of

CAPPED, IDLE, HOT = 0x4, 0x1, 0x20


def ask(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED, limits: Mapping[str, float] | None = None) -> Answer:
    return rule.ask(about, claim, limits)


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    return answer


def shown(clock_mhz: Callable[[float], float]) -> Callable[[float], int]:
    """A clock as NVML shows it: refreshed every 100 ms, in steps of 15 MHz."""
    return lambda t: 15 * round(clock_mhz(np.floor(t * 10) / 10) / 15)


def swinging(
    *, drift_ratio: float = 0.0, length_s: float = 4.0, swing_ratio: float = 0.03, phase: float = 0.0, period_s: float = 1.0
) -> Callable[[float], int]:
    """A capped GEMM's clock on an H200, about 1500 MHz, and a drift over the window."""

    def clock_mhz(t: float) -> float:
        swing = swing_ratio * np.sin(2 * np.pi * t / period_s + phase)
        return float(1500.0 * (1.0 + swing + drift_ratio * min(1.0, max(0.0, t / length_s))))

    return shown(clock_mhz)


def capped(clock: Signal, *, length_s: float = 4.0, **signals: Signal) -> Evidence:
    return evidence(length_s=length_s, signals={"sm_clock_mhz": clock, "event_reasons_mask": CAPPED, **signals})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_a_still_clock_is_clear_under_every_claim(rule: Rule, claim: Claim) -> None:
    assert isinstance(ask(rule, evidence(length_s=4.0), claim), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_clock_that_was_never_read_is_unobserved(rule: Rule) -> None:
    about = evidence(signals={"sm_clock_mhz": None, "mem_clock_mhz": None})
    assert isinstance(ask(rule, about), Unobserved)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_clock_mostly_unread_is_unobserved(rule: Rule) -> None:
    gap = Gap(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 4_500_000_000)
    assert isinstance(ask(rule, evidence(gaps=[gap])), Unobserved)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_clock_that_reads_zero_was_not_observed(rule: Rule) -> None:
    assert isinstance(ask(rule, evidence(signals={"sm_clock_mhz": 0, "mem_clock_mhz": 0})), Unobserved)


class TestClockDrift:
    @pytest.mark.parametrize("length_s", [2.0, 3.0, 4.0, 6.0, 12.0, 60.0])
    def test_five_per_cent_under_the_controllers_swing_reject(self, length_s: float) -> None:
        about = capped(swinging(drift_ratio=-0.05, length_s=length_s), length_s=length_s)
        answer = found(ask(clock_drift, about))
        assert answer.severity is Severity.REJECT
        assert answer.facts["drift_ratio"] == pytest.approx(-0.05, abs=0.012)
        assert answer.effect_ratio == pytest.approx(-0.025, abs=0.006)

    def test_two_per_cent_of_a_calm_clock_are_flagged(self) -> None:
        about = capped(swinging(drift_ratio=0.02, swing_ratio=0.0, length_s=6.0), length_s=6.0)
        answer = found(ask(clock_drift, about))
        assert answer.severity is Severity.FLAG
        assert answer.facts["begin_mhz"] == pytest.approx(1500, abs=8)
        assert answer.facts["end_mhz"] == pytest.approx(1530, abs=8)

    def test_half_a_per_cent_spoils_a_fixed_clock_only(self) -> None:
        about = evidence(length_s=10.0, signals={"sm_clock_mhz": lambda t: round(1200.0 * (1 - 0.0008 * max(0.0, t)))})
        assert isinstance(ask(clock_drift, about), Clear)
        assert isinstance(ask(clock_drift, about, Claim.BURST), Clear)
        assert found(ask(clock_drift, about, Claim.FIXED_CLOCK)).severity is Severity.REJECT

    @example(phase=2.0, period_s=1.08984375, swing=0.02734375, length_s=10.0)
    @given(st.floats(0.0, 6.28), st.floats(0.9, 1.1), st.floats(0.0, 0.03), st.sampled_from([2.0, 3.0, 4.0, 6.0, 10.0, 12.5]))
    @settings(max_examples=share_of(40))
    def test_a_swing_of_any_phase_is_no_drift(self, phase: float, period_s: float, swing: float, length_s: float) -> None:
        clock = swinging(phase=phase, period_s=period_s, swing_ratio=swing)
        assert isinstance(ask(clock_drift, capped(clock, length_s=length_s)), Clear)

    @given(st.floats(0.0, 6.28), st.sampled_from([2.0, 4.0, 10.0]), st.sampled_from([-1, 1]))
    @settings(max_examples=share_of(25))
    def test_five_per_cent_are_found_at_any_phase_of_the_swing(self, phase: float, length_s: float, sign: int) -> None:
        clock = swinging(phase=phase, swing_ratio=0.02, drift_ratio=0.05 * sign, length_s=length_s)
        answer = found(ask(clock_drift, capped(clock, length_s=length_s)))
        assert float(answer.facts["drift_ratio"] or 0) * sign > 0

    def test_less_than_two_seconds_are_unobserved(self) -> None:
        assert isinstance(ask(clock_drift, evidence(length_s=1.0)), Unobserved)

    def test_a_slowly_refreshed_clock_needs_a_longer_window(self) -> None:
        def slow(length_s: float) -> Evidence:
            about = evidence(length_s=length_s)
            return replace(about, trace=replace(about.trace, refresh_ns={"sm_clock_mhz": 500_000_000}))

        assert isinstance(ask(clock_drift, slow(2.5)), Unobserved)
        assert isinstance(ask(clock_drift, slow(6.0)), Clear)

    def test_an_idle_gpu_has_no_working_clock(self) -> None:
        about = evidence(signals={"sm_clock_mhz": swinging(drift_ratio=-0.1), "event_reasons_mask": IDLE})
        assert isinstance(ask(clock_drift, about), Unobserved)

    def test_the_onset_of_the_cap_is_a_step_and_no_drift(self) -> None:
        onset = {"sm_clock_mhz": lambda t: 1980 if t < 1.2 else 1560, "event_reasons_mask": lambda t: 0 if t < 1.2 else CAPPED}
        assert isinstance(ask(clock_drift, evidence(length_s=6.0, signals=onset)), Clear)

    def test_a_drift_after_the_onset_is_still_found(self) -> None:
        onset = {
            "sm_clock_mhz": shown(lambda t: 1980 if t < 1.2 else 1560 * (1 - 0.05 * (t - 1.2) / 4.8)),
            "event_reasons_mask": lambda t: 0 if t < 1.2 else CAPPED,
        }
        answer = found(ask(clock_drift, evidence(length_s=6.0, signals=onset)))
        assert answer.facts["drift_ratio"] == pytest.approx(-0.05, abs=0.01)

    def test_an_onset_that_leaves_too_little_is_unobserved(self) -> None:
        onset = {"sm_clock_mhz": lambda t: 1980 if t < 1.2 else 1560, "event_reasons_mask": lambda t: 0 if t < 1.2 else CAPPED}
        assert isinstance(ask(clock_drift, evidence(length_s=2.6, signals=onset)), Unobserved)

    @pytest.mark.parametrize("blocks_count", [4.0, 5.5, 600.0])
    def test_any_limit_a_user_sets_gives_an_answer(self, blocks_count: float) -> None:
        answer = ask(clock_drift, evidence(length_s=4.0), limits={"blocks_count": blocks_count})
        assert isinstance(answer, Clear | Unobserved)


class TestClockRamp:
    @staticmethod
    def rising(until_s: float, *, length_s: float = 4.0, mask: Signal = 0) -> Evidence:
        clock = {"sm_clock_mhz": lambda t: 825 if t < until_s else 1980, "event_reasons_mask": mask}
        return evidence(length_s=length_s, signals=clock)

    def test_a_first_quarter_at_the_idle_clock_rejects(self) -> None:
        answer = found(ask(clock_ramp, self.rising(1.0)))
        assert answer.severity is Severity.REJECT
        assert (answer.facts["first_mhz"], answer.facts["rest_mhz"]) == (825.0, 1980.0)
        assert answer.facts["ramp_s"] == pytest.approx(1.0, abs=0.06)
        assert answer.effect_ratio == pytest.approx(0.25 * (1980 / 825 - 1), rel=0.1)

    def test_a_short_ramp_in_a_long_window_is_flagged(self) -> None:
        assert found(ask(clock_ramp, self.rising(0.3, length_s=6.0))).severity is Severity.FLAG

    def test_what_one_refresh_can_explain_is_only_flagged(self) -> None:
        # The gauge shows what was true up to 100 ms before: 150 ms of a low reading are 50 ms for sure.
        assert found(ask(clock_ramp, self.rising(0.15, length_s=1.0))).severity is Severity.FLAG

    def test_a_clock_that_rose_before_the_window_is_clear(self) -> None:
        assert isinstance(ask(clock_ramp, self.rising(0.0, length_s=1.0)), Clear)

    def test_one_second_is_enough_to_clear(self) -> None:
        assert isinstance(ask(clock_ramp, capped(swinging(), length_s=1.0)), Clear)

    def test_a_fast_start_is_no_ramp(self) -> None:
        about = evidence(signals={"sm_clock_mhz": lambda t: 1980 if t < 0.5 else 1560})
        assert isinstance(ask(clock_ramp, about), Clear)

    @pytest.mark.parametrize("mask", [CAPPED, HOT])
    def test_a_start_held_low_for_power_or_heat_is_no_ramp(self, mask: int) -> None:
        assert isinstance(ask(clock_ramp, self.rising(1.0, mask=mask)), Clear)

    def test_without_event_reasons_only_a_deep_ramp_counts(self) -> None:
        def dip(mhz: int) -> Evidence:
            return evidence(signals={"sm_clock_mhz": lambda t: mhz if t < 1 else 1980, "event_reasons_mask": None})

        assert isinstance(ask(clock_ramp, dip(1850)), Clear)
        assert found(ask(clock_ramp, dip(825))).severity is Severity.REJECT

    def test_a_dip_later_in_the_window_is_no_ramp(self) -> None:
        about = evidence(signals={"sm_clock_mhz": lambda t: 825 if 1 < t < 2 else 1980})
        assert isinstance(ask(clock_ramp, about), Clear)

    def test_a_window_of_less_than_three_refreshes_is_unobserved(self) -> None:
        assert isinstance(ask(clock_ramp, self.rising(0.1, length_s=0.25)), Unobserved)

    def test_an_idle_gpus_wandering_clock_is_unobserved(self) -> None:
        assert isinstance(ask(clock_ramp, self.rising(1.0, mask=IDLE)), Unobserved)


class TestMemClockChange:
    @staticmethod
    def low(since_s: float = 3.0, **signals: Signal) -> Evidence:
        return evidence(signals={"mem_clock_mhz": lambda t: 2201 if t >= since_s else 3201, **signals})

    def test_mem_clock_low_rejects_bandwidth_bound_work(self) -> None:
        """A bandwidth bound kernel below the top clock is rejected."""
        answer = found(ask(mem_clock_change, self.low()))
        assert answer.severity is Severity.REJECT
        assert (answer.facts["mem_mhz"], answer.facts["top_mhz"]) == (2201.0, 3201.0)
        assert answer.facts["low_ratio"] == pytest.approx(0.5, abs=0.02)
        assert answer.effect_ratio == pytest.approx(0.5 * (3201 / 2201 - 1), rel=0.05)

    def test_an_arithmetic_bound_one_is_flagged(self) -> None:
        answer = found(ask(mem_clock_change, self.low(dram_activity_ratio=0.1)))
        assert answer.severity is Severity.FLAG
        assert answer.effect_ratio is None

    def test_mem_clock_uses_memory_time_without_bandwidth(self) -> None:
        """Without measured bandwidth the share of memory time decides."""
        light = self.low(dram_activity_ratio=None, mem_utilization_ratio=0.2)
        assert found(ask(mem_clock_change, light)).severity is Severity.FLAG
        assert found(ask(mem_clock_change, self.low(dram_activity_ratio=None))).severity is Severity.REJECT

    def test_with_neither_it_is_flagged(self) -> None:
        about = self.low(dram_activity_ratio=None, mem_utilization_ratio=None)
        assert found(ask(mem_clock_change, about)).severity is Severity.FLAG

    def test_a_whole_window_below_the_top_is_found(self) -> None:
        answer = found(ask(mem_clock_change, self.low(-10.0)))
        assert answer.facts["low_ratio"] == 1.0

    def test_idle_moments_are_left_out(self) -> None:
        resting = self.low(utilization_ratio=lambda t: 0.0 if t >= 2.8 else 0.97)
        assert isinstance(ask(mem_clock_change, resting), Clear)
        by_reason = self.low(event_reasons_mask=lambda t: IDLE if t >= 2.9 else 0)
        assert isinstance(ask(mem_clock_change, by_reason), Clear)

    def test_low_and_unknown_whether_working_is_unobserved(self) -> None:
        assert isinstance(ask(mem_clock_change, self.low(utilization_ratio=None)), Unobserved)

    def test_mem_clock_without_known_maximum(self) -> None:
        """Without a known maximum a change is found and a still clock is unobserved."""
        nameless = replace(DEVICE, mem_clock_max_mhz=None)
        assert isinstance(ask(mem_clock_change, evidence(device=nameless)), Unobserved)
        assert isinstance(ask(mem_clock_change, replace(self.low(), device=nameless)), Found)
