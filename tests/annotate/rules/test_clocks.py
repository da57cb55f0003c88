"""Tests of the rules about drifts and swings, ramps from idle, and low memory clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Bound, Number, Replaces
from annotate.case import Case
from annotate.claims import Claim
from annotate.evidence import Evidence, Gap, Timings
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.clocks import RULES, clock_drift, clock_ramp, mem_clock_change
from annotate.rules.held_conditions import clock_levels
from tests.annotate.builders import BEGIN_NS, DEVICE, Signal, evidence
from tests.annotate.occurrences.clock_control import stamped
from tests.annotate.rules.asking import ask
from tests.examples import share_of

CAPPED, IDLE, HOT = 0x4, 0x1, 0x20


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    assert answer.severity is Severity.NOTE  # the judge derives the severity from the bounds
    return answer


def bound(answer: Answer, number: Number = Number.MEAN) -> Bound:
    (one,) = (each for each in found(answer).bounds if each.number is number)
    return one


def value_ratio(one: Bound) -> float:
    assert one.estimate is not None
    return one.estimate.value_ratio


def shown(clock_mhz: Callable[[float], float]) -> Callable[[float], int]:
    """Return a clock as NVML shows it: refreshed every 100 ms, in steps of 15 MHz."""
    return lambda t: 15 * round(clock_mhz(np.floor(t * 10) / 10) / 15)


def swinging(
    *, drift_ratio: float = 0.0, length_s: float = 4.0, swing_ratio: float = 0.03, phase: float = 0.0, period_s: float = 1.0
) -> Callable[[float], int]:
    """Return the clock of a capped GEMM on an H200: a swing about 1500 MHz and a drift over the window."""

    def clock_mhz(t: float) -> float:
        swing = swing_ratio * np.sin(2 * np.pi * t / period_s + phase)
        return float(1500.0 * (1.0 + swing + drift_ratio * min(1.0, max(0.0, t / length_s))))

    return shown(clock_mhz)


def capped(clock: Signal, *, length_s: float = 4.0, **signals: Signal) -> Evidence:
    return evidence(length_s=length_s, signals={"sm_clock_mhz": clock, "event_reasons_mask": CAPPED, **signals})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_constant_clock_is_clear_under_every_claim(rule: Rule, claim: Claim) -> None:
    assert isinstance(ask(rule, evidence(length_s=4.0), claim), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_unread_clock_is_unobserved(rule: Rule) -> None:
    about = evidence(signals={"sm_clock_mhz": None, "mem_clock_mhz": None})
    assert isinstance(ask(rule, about), Unobserved)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_mostly_unread_clock_is_unobserved(rule: Rule) -> None:
    gap = Gap(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 4_500_000_000)
    assert isinstance(ask(rule, evidence(gaps=[gap])), Unobserved)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_clock_reading_of_zero_is_unobserved(rule: Rule) -> None:
    assert isinstance(ask(rule, evidence(signals={"sm_clock_mhz": 0, "mem_clock_mhz": 0})), Unobserved)


class TestClockDrift:
    @pytest.mark.parametrize("length_s", [4.0, 12.0])
    def test_drift_is_bounded_by_its_first_and_last_fifth(self, length_s: float) -> None:
        """The mean of a clock that falls by 10 % is about 4 % off its first and its last fifth."""
        about = capped(swinging(drift_ratio=-0.1, swing_ratio=0.01, length_s=length_s), length_s=length_s)
        answer = found(ask(clock_drift, about))
        assert 0.025 < bound(answer).size_ratio < 0.05
        assert answer.facts["begin_mhz"] == pytest.approx(1500, rel=0.02)
        assert answer.facts["end_mhz"] == pytest.approx(1350, rel=0.02)
        assert clock_drift.says.format(**answer.facts).startswith("the SM clock drifted by -")

    def test_small_drift_of_a_calm_clock_has_its_size(self) -> None:
        """From 1500 to 1530 MHz in steps of 15 MHz, the mean of 1515 MHz is 1 % off either end."""
        about = capped(swinging(drift_ratio=0.02, swing_ratio=0.0, length_s=6.0), length_s=6.0)
        answer = found(ask(clock_drift, about))
        assert bound(answer).ratio == pytest.approx(0.01, abs=0.001)
        assert bound(answer, Number.THROUGHPUT).ratio == pytest.approx(0.01, abs=0.001)
        assert answer.facts["begin_mhz"] == pytest.approx(1500.0)
        assert answer.facts["end_mhz"] == pytest.approx(1530.0)

    @pytest.mark.parametrize("claim", Claim)
    def test_drift_has_a_bound_under_every_claim(self, claim: Claim) -> None:
        about = capped(swinging(drift_ratio=-0.15, swing_ratio=0.01), length_s=4.0)
        assert bound(ask(clock_drift, about, claim)).size_ratio > 0.04

    @given(st.floats(0.0, 6.28), st.floats(0.9, 1.1), st.floats(0.0, 0.03), st.sampled_from([2.0, 3.0, 4.0, 6.0, 10.0, 12.5]))
    @settings(max_examples=share_of(40))
    def test_swing_of_any_phase_is_not_a_drift(self, phase: float, period_s: float, swing: float, length_s: float) -> None:
        """A swing is clear or has a bound below 2 %."""
        case = Case(capped(swinging(phase=phase, period_s=period_s, swing_ratio=swing), length_s=length_s))
        answer = clock_drift.ask_about(case)
        assert isinstance(answer, Clear) or bound(answer).size_ratio < 0.02

    @given(st.floats(0.0, 6.28), st.sampled_from([4.0, 10.0]), st.sampled_from([-1, 1]))
    @settings(max_examples=share_of(25))
    def test_large_drift_is_bounded_at_any_phase_of_the_swing(self, phase: float, length_s: float, sign: int) -> None:
        """A drift of 15 % over a swing of 2 % has a bound above 3 %, under any rule's name."""
        clock = swinging(phase=phase, swing_ratio=0.02, drift_ratio=0.15 * sign, length_s=length_s)
        shift = Case(capped(clock, length_s=length_s)).clock_shift
        assert shift is not None
        assert shift.bound_ratio > 0.03

    def test_drift_of_an_idle_gpu_is_unobserved(self) -> None:
        about = evidence(signals={"sm_clock_mhz": swinging(drift_ratio=-0.1), "event_reasons_mask": IDLE})
        assert isinstance(ask(clock_drift, about), Unobserved)

    def test_onset_of_the_cap_is_a_step_not_a_drift(self) -> None:
        """A single step is a change of regime, not a drift."""
        onset = {"sm_clock_mhz": lambda t: 1980 if t < 1.2 else 1560, "event_reasons_mask": lambda t: 0 if t < 1.2 else CAPPED}
        about = evidence(length_s=6.0, signals=onset)
        assert isinstance(ask(clock_drift, about), Clear)
        shift = Case(about).clock_shift
        assert shift is not None
        assert shift.rule == "regime-change"

    def test_constant_stamped_clock_is_found_by_one_rule(self) -> None:
        """``clock-levels``, not ``clock-drift``, finds constant stamps and replaces the driver's uncertainty."""
        about = evidence(signals={"sm_clock_mhz": 1485}, timings=stamped(1400.0))
        assert isinstance(ask(clock_drift, about), Clear)
        still = bound(ask(clock_levels, about))
        assert (still.ratio, still.replaces) == (0.0, Replaces.UNRESOLVED)

    def test_stamps_alone_show_a_drift(self) -> None:
        """Stamps show a drift without the driver's clock: 1485 MHz in the first fifth against a mean of 1425 MHz."""
        still = stamped(1.0)
        falling = Timings(still.at_ns, still.took_s, np.linspace(1500.0, 1350.0, len(still.at_ns)))
        answer = found(ask(clock_drift, evidence(signals={"sm_clock_mhz": None}, timings=falling)))
        assert 0.03 < bound(answer).size_ratio < 0.055


class TestClockRamp:
    @staticmethod
    def rising(until_s: float, *, length_s: float = 4.0, mask: Signal = 0) -> Evidence:
        clock = {"sm_clock_mhz": lambda t: 825 if t < until_s else 1980, "event_reasons_mask": mask}
        return evidence(length_s=length_s, signals=clock)

    def test_first_quarter_at_the_idle_clock_has_its_size(self) -> None:
        """A quarter of the window at 825 MHz, which makes calls 2.4 times as long, makes the mean 35 % longer."""
        answer = found(ask(clock_ramp, self.rising(1.0)))
        assert answer.facts["begin_mhz"] == pytest.approx(825.0)
        assert answer.facts["end_mhz"] == pytest.approx(1980.0)
        assert value_ratio(bound(answer)) == pytest.approx(0.25 * (1980 / 825 - 1), abs=0.05)
        assert value_ratio(bound(answer, Number.THROUGHPUT)) == pytest.approx(-0.26, abs=0.03)
        assert answer.span_ns is not None
        assert answer.span_ns[0] == BEGIN_NS
        assert clock_ramp.says.format(**answer.facts) == "the first 0.9 s ran at 825 MHz before the SM clock rose to 1980 MHz"

    def test_short_ramp_in_a_long_window_is_small(self) -> None:
        """After the driver's lag, 0.225 of 6 s at 825 MHz make the mean 5.2 % longer."""
        assert value_ratio(bound(ask(clock_ramp, self.rising(0.3, length_s=6.0)))) == pytest.approx(0.052, abs=0.005)

    def test_clock_ramp_before_the_window_is_clear(self) -> None:
        assert isinstance(ask(clock_ramp, self.rising(0.0, length_s=1.0)), Clear)

    def test_capped_clock_of_one_second_has_no_ramp(self) -> None:
        assert isinstance(ask(clock_ramp, capped(swinging(), length_s=1.0)), Clear)

    def test_fast_start_is_not_a_ramp(self) -> None:
        about = evidence(signals={"sm_clock_mhz": lambda t: 1980 if t < 0.5 else 1560})
        assert isinstance(ask(clock_ramp, about), Clear)

    @pytest.mark.parametrize("mask", [CAPPED, HOT, None])
    def test_low_start_has_a_large_bound_for_every_cause(self, mask: int | None) -> None:
        """A low start has a bound above 30 % under a cap, under heat and with unobserved reasons."""
        assert bound(ask(clock_ramp, self.rising(1.0, mask=mask))).size_ratio > 0.3

    def test_later_dip_is_not_a_ramp(self) -> None:
        about = evidence(signals={"sm_clock_mhz": lambda t: 825 if 1 < t < 2 else 1980})
        assert isinstance(ask(clock_ramp, about), Clear)

    def test_ramp_below_three_refreshes_is_unobserved(self) -> None:
        assert isinstance(ask(clock_ramp, self.rising(0.1, length_s=0.25)), Unobserved)

    def test_ramp_of_an_idle_gpu_is_unobserved(self) -> None:
        assert isinstance(ask(clock_ramp, self.rising(1.0, mask=IDLE)), Unobserved)


class TestMemClockChange:
    @staticmethod
    def low(since_s: float = 3.0, **signals: Signal) -> Evidence:
        return evidence(signals={"mem_clock_mhz": lambda t: 2201 if t >= since_s else 3201, **signals})

    def test_low_memory_clock_is_bounded_by_its_bandwidth(self) -> None:
        """Half of the time at 2201 MHz has a bound of 22.7 %; at 90 % of the bandwidth the estimate is 20.4 %, at least 18.2 %."""
        answer = found(ask(mem_clock_change, self.low()))
        assert (answer.facts["mem_mhz"], answer.facts["top_mhz"]) == (2201.0, 3201.0)
        assert answer.facts["low_ratio"] == pytest.approx(0.5, abs=0.02)
        mean = bound(answer)
        assert mean.ratio == pytest.approx(0.5 * (3201 / 2201 - 1), abs=0.005)
        assert mean.estimate is not None
        assert mean.estimate.low_ratio == pytest.approx(0.182, abs=0.005)
        assert mean.estimate.value_ratio == pytest.approx(0.204, abs=0.005)
        assert {each.number for each in answer.bounds} == set(Number) - {Number.RATIO}

    def test_little_used_memory_has_an_estimate_from_zero(self) -> None:
        mean = bound(ask(mem_clock_change, self.low(dram_activity_ratio=0.1)))
        assert mean.ratio == pytest.approx(0.227, abs=0.005)
        assert mean.estimate is not None
        assert mean.estimate.nearer_ratio == 0.0

    def test_unmeasured_bandwidth_leaves_a_bound_without_estimate(self) -> None:
        assert bound(ask(mem_clock_change, self.low(dram_activity_ratio=None))).estimate is None

    def test_memory_clock_always_below_the_top_is_found(self) -> None:
        answer = found(ask(mem_clock_change, self.low(-10.0)))
        assert answer.facts["low_ratio"] == 1.0
        assert bound(answer, Number.MEDIAN).ratio == pytest.approx(3201 / 2201 - 1, abs=0.001)

    def test_clock_of_idle_moments_is_left_out(self) -> None:
        resting = self.low(utilization_ratio=lambda t: 0.0 if t >= 2.8 else 0.97)
        assert isinstance(ask(mem_clock_change, resting), Clear)
        by_reason = self.low(event_reasons_mask=lambda t: IDLE if t >= 2.9 else 0)
        assert isinstance(ask(mem_clock_change, by_reason), Clear)

    def test_low_memory_clock_counts_fully_without_utilisation(self) -> None:
        """Without utilisation the low clock counts as if the GPU had worked."""
        assert bound(ask(mem_clock_change, self.low(utilization_ratio=None))).ratio == pytest.approx(0.227, abs=0.005)

    def test_mem_clock_without_known_maximum(self) -> None:
        """Without a known maximum, a change is found and a constant clock is unobserved."""
        nameless = replace(DEVICE, mem_clock_max_mhz=None)
        assert isinstance(ask(mem_clock_change, evidence(device=nameless)), Unobserved)
        assert isinstance(ask(mem_clock_change, replace(self.low(), device=nameless)), Found)
