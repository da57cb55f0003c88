"""Onsets, mixtures and pauses: found where they are, and nowhere in a steady window."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from annotate.claims import Claim
from annotate.evidence import Evidence, Fact, Timings, Trace
from annotate.rule import Answer, Clear, Found, Severity, Unobserved
from annotate.rules.steadiness import RULES, bursty_duty_cycle, regime_change
from tests.annotate.builders import BEGIN_NS, DEVICE, Signal, capped_ns, evidence

CAPPED_MHZ = 1560
NO_CAP_TIME: dict[str, Signal] = {"power_cap_ns": None, "power_violation_ns": None}


def refreshed(counter: Callable[[float], float], period_s: float = 0.1, phase_s: float = 0.03) -> Callable[[float], float]:
    """A counter as the driver shows it: brought up to date ten times a second."""
    return lambda t: counter(phase_s + period_s * np.floor((t - phase_s) / period_s))


def cap(since_s: float = -100.0, until_s: float = 1e9) -> dict[str, Signal]:
    """A power cap between two times, as its counters, its bit and the clock show it."""

    def counted(t: float) -> float:
        return 5_000_000_000 + int(1e9 * max(0.0, min(t, until_s) - since_s))

    def on(t: float) -> bool:
        return since_s <= t - 0.1 < until_s

    return {
        "power_cap_ns": refreshed(counted),
        "power_violation_ns": counted,
        "event_reasons_mask": lambda t: 0x4 if on(t) else 0,
        "sm_clock_mhz": lambda t: CAPPED_MHZ if on(t) else 1980,
        "power_w": 695.0,
    }


def pause(until_s: float, length_s: float = 3.0) -> dict[str, Signal]:
    """Nothing to do for a while."""

    def idle(t: float) -> bool:
        return until_s - length_s <= t < until_s

    return {
        "power_w": lambda t: 122.0 if idle(t) else 695.0,
        "utilization_ratio": lambda t: 0.0 if idle(t - 0.2) else 0.98,
    }


def changed(about: Evidence, claim: Claim = Claim.SUSTAINED, **limits: float) -> Answer:
    return regime_change.ask(about, claim, limits)


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    return answer


def timings(took_s: Callable[[float], float], length_s: float, every_s: float | None = None) -> Timings:
    at_s, t = [], 0.0
    while t < length_s:
        at_s.append(t)
        t += every_s or took_s(t)
    return Timings(BEGIN_NS + np.array([int(t * 1e9) for t in at_s], np.int64), np.array([took_s(t) for t in at_s]))


class TestRegimeChange:
    @pytest.mark.parametrize("claim", Claim)
    def test_a_copy_that_never_was_capped_is_clear(self, claim: Claim) -> None:
        assert isinstance(changed(evidence(), claim), Clear)

    @pytest.mark.parametrize("claim", Claim)
    @pytest.mark.parametrize("length_s", [0.35, 0.9, 1.0, 1.7, 3.0, 6.0])
    def test_a_cap_that_held_long_before_and_throughout_is_clear(self, claim: Claim, length_s: float) -> None:
        assert isinstance(changed(evidence(length_s=length_s, signals=cap()), claim), Clear)

    @pytest.mark.parametrize("phase_s", [0.0, 0.02, 0.05, 0.08])
    def test_the_error_of_the_counter_alone_makes_no_mixture(self, phase_s: float) -> None:
        counter = refreshed(capped_ns(), phase_s=phase_s)
        signals = {**cap(), "power_cap_ns": counter, "power_violation_ns": None, "event_reasons_mask": None}
        assert isinstance(changed(evidence(length_s=3.0, signals=signals)), Clear)

    def test_regime_onset_in_the_middle_is_rejected(self) -> None:
        """An onset in the middle is found with its time and rejected."""
        answer = found(changed(evidence(signals=cap(since_s=2.5))))
        assert answer.severity is Severity.REJECT
        assert answer.facts["when_s"] == pytest.approx(2.5, abs=0.15)
        assert answer.facts["before_ratio"] == pytest.approx(2.5 / 6, abs=0.03)
        assert answer.facts["what"] == "the power cap engaged 2.5 s into the window of 6 s, the clock going -21%"

    def test_regime_onset_at_begin_is_placed_in_words(self) -> None:
        """An onset at the very beginning is placed in words and never at nought per cent."""
        what = str(found(changed(evidence(signals={**cap(since_s=0.1), **pause(0.04)}, length_s=6.0))).facts["what"])
        assert re.search(r"engaged \d+ ms into the window of 6 s", what), what

    def test_a_faster_head_makes_the_mean_time_read_too_short(self) -> None:
        answer = found(changed(evidence(signals=cap(since_s=3.0))))
        assert answer.effect_ratio == pytest.approx(0.5 * (CAPPED_MHZ / 1980 - 1), abs=0.02)

    def test_a_cap_that_lets_go_is_found_too(self) -> None:
        answer = found(changed(evidence(signals=cap(until_s=3.0))))
        assert "let go" in str(answer.facts["what"])
        assert answer.severity is Severity.REJECT

    def test_regime_cap_that_comes_and_goes_is_flagged(self) -> None:
        """A cap that comes and goes is flagged and no effect is made up."""

        def every_other_second(t: float) -> int:
            return int(1e9 * ((t + 100) // 2 + min(1.0, (t + 100) % 2)))

        signals = {"power_cap_ns": refreshed(every_other_second), "power_violation_ns": None, "event_reasons_mask": None}
        answer = found(changed(evidence(signals=signals)))
        assert "came and went" in str(answer.facts["what"])
        assert (answer.severity, answer.effect_ratio) == (Severity.FLAG, None)

    def test_regime_cap_with_short_turns_names_the_window(self) -> None:
        """A cap whose turns are too short to place is declared of the window."""

        def of_every_refresh_a_third(t: float) -> int:
            return int(1e9 * (t + 100) / 3)

        signals = {"power_cap_ns": refreshed(of_every_refresh_a_third), "power_violation_ns": None, "event_reasons_mask": None}
        answer = found(changed(evidence(signals=signals)))
        assert str(answer.facts["what"]).startswith("the power cap came and went within the window of ")

    def test_a_mixture_that_pauses_explain_is_only_flagged(self) -> None:
        signals = {**cap(since_s=2.5), "utilization_ratio": 0.4}
        assert found(changed(evidence(signals=signals))).severity is Severity.FLAG

    def test_under_burst_a_mixture_is_only_flagged(self) -> None:
        assert found(changed(evidence(signals=cap(since_s=2.5)), Claim.BURST)).severity is Severity.FLAG

    def test_under_fixed_clock_a_mixture_is_rejected(self) -> None:
        assert found(changed(evidence(signals=cap(since_s=2.5)), Claim.FIXED_CLOCK)).severity is Severity.REJECT

    def test_an_onset_early_in_the_window_after_a_pause_is_flagged(self) -> None:
        answer = found(changed(evidence(length_s=2.0, signals={**cap(since_s=0.07), **pause(0.0)})))
        assert answer.severity is Severity.FLAG
        assert answer.facts["when_s"] == pytest.approx(0.07, abs=0.03)
        assert "after a pause the power cap engaged" in str(answer.facts["what"])

    def test_regime_onset_in_a_short_window_is_rejected(self) -> None:
        """The same onset in a window so short that it matters is rejected."""
        about = evidence(length_s=0.5, signals={**cap(since_s=0.07), **pause(0.0)})
        assert found(changed(about)).severity is Severity.REJECT

    def test_the_same_onset_in_a_minute_is_a_note(self) -> None:
        about = evidence(length_s=60.0, signals={**cap(since_s=0.07), **pause(0.0)})
        assert found(changed(about)).severity is Severity.NOTE

    def test_a_pause_that_only_the_gauges_show_is_found_too(self) -> None:
        about = evidence(length_s=2.0, signals={**cap(since_s=0.07), **pause(0.0)})
        thin = replace(about, trace=replace(about.trace, dense_power=Trace().dense_power))
        assert found(changed(thin)).severity is Severity.FLAG

    def test_regime_capped_soon_after_a_pause_is_flagged(self) -> None:
        """A window that began capped but a second after a pause is flagged."""
        answer = found(changed(evidence(length_s=2.0, signals={**cap(since_s=-0.9), **pause(-1.0)})))
        assert answer.severity is Severity.FLAG
        assert answer.facts["since_s"] == pytest.approx(1.0, abs=0.05)

    def test_regime_settled_clock_is_a_note(self) -> None:
        """A window long enough to show that its clock had settled makes that a note."""
        assert found(changed(evidence(length_s=6.0, signals={**cap(since_s=-0.9), **pause(-1.0)}))).severity is Severity.NOTE

    def test_whoever_warmed_up_for_three_seconds_is_clear(self) -> None:
        about = evidence(length_s=2.0, signals={**cap(since_s=-3.0), **pause(-3.05, 0.5)})
        assert isinstance(changed(about), Clear)
        thin = replace(about, trace=replace(about.trace, dense_power=Trace().dense_power))
        assert isinstance(changed(thin), Clear)

    def test_a_pause_shorter_than_the_cap_forgets_is_clear(self) -> None:
        assert isinstance(changed(evidence(length_s=2.0, signals={**cap(), **pause(0.0, 0.03)})), Clear)

    def test_a_pause_before_work_that_is_never_capped_is_clear(self) -> None:
        assert isinstance(changed(evidence(length_s=2.0, signals=pause(0.0))), Clear)

    def test_a_step_of_the_clock_without_a_cap_is_found(self) -> None:
        answer = found(changed(evidence(signals={"sm_clock_mhz": lambda t: 1980 if t < 2 else 1800})))
        assert answer.facts["clock_step_ratio"] == pytest.approx(1800 / 1980 - 1, abs=0.002)
        assert answer.facts["when_s"] == pytest.approx(2.0, abs=0.15)

    def test_the_controllers_swing_is_no_step(self) -> None:
        def swing(t: float) -> int:
            return 15 * round(1500 * (1 + 0.03 * float(np.sin(6.3 * t))) / 15)

        assert isinstance(changed(evidence(signals={**cap(), "sm_clock_mhz": swing})), Clear)

    @pytest.mark.parametrize("length_s", [0.6, 1.0, 1.5])
    def test_half_a_swing_in_a_short_window_is_no_step(self, length_s: float) -> None:
        signals = {**cap(), "sm_clock_mhz": lambda t: 1500 if t < length_s / 2 else 1560}
        assert isinstance(changed(evidence(length_s=length_s, signals=signals)), Clear)

    def test_a_slow_drift_is_no_step(self) -> None:
        assert isinstance(changed(evidence(signals={"sm_clock_mhz": lambda t: 1980 - 15 * round(t * 2)})), Clear)

    def test_regime_onset_by_iteration_times(self) -> None:
        """Iteration times show an onset that the driver is too slow for."""
        about = evidence(length_s=1.0, signals=cap())
        declared = replace(about, timings=timings(lambda t: 0.0002 if t > 0.075 else 0.00017, 1.0))
        answer = found(changed(declared))
        assert answer.facts["when_s"] == pytest.approx(0.075, abs=0.02)
        assert "18% longer" in str(answer.facts["what"])

    def test_slow_first_iterations_are_a_cold_start_and_not_this(self) -> None:
        about = evidence(length_s=2.0, signals=cap())
        declared = replace(about, timings=timings(lambda t: 0.0002 if t > 0.05 else 0.0009, 2.0))
        assert isinstance(changed(declared), Clear)

    def test_without_the_cap_and_the_clock_it_is_unobserved(self) -> None:
        blind: Mapping[str, Signal] = {**NO_CAP_TIME, "event_reasons_mask": None, "sm_clock_mhz": None}
        assert isinstance(changed(evidence(signals=blind)), Unobserved)
        nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
        assert changed(nobody) == Unobserved("no daemon is running")

    def test_regime_short_window_needs_a_certain_counter(self) -> None:
        """A window shorter than three refreshes is unobserved unless the counter is certain."""
        thin = {**cap(), "power_violation_ns": None, "event_reasons_mask": None}
        assert not isinstance(changed(evidence(length_s=0.15, signals=thin)), Found)
        mixed = {**cap(since_s=0.05), "power_violation_ns": None, "event_reasons_mask": None}
        assert isinstance(changed(evidence(length_s=0.12, signals=mixed)), Unobserved)

    def test_regime_reset_counter_uses_reasons(self) -> None:
        """A counter set back by a driver reload leaves the sampled reasons."""
        signals = {**cap(since_s=2.5), "power_violation_ns": None, "power_cap_ns": lambda t: 10**9 if t < 1 else 0}
        assert "engaged" in str(found(changed(evidence(signals=signals))).facts["what"])


class TestBurstyDutyCycle:
    def ask(
        self,
        claim: Claim = Claim.SUSTAINED,
        *,
        signals: Mapping[str, Signal] | None = None,
        declared: Mapping[str, Fact] | None = None,
        length_s: float = 4.0,
        times: Timings | None = None,
    ) -> Answer:
        about = evidence(length_s=length_s, signals=signals, declared=declared)
        return bursty_duty_cycle.ask(replace(about, timings=times), claim)

    @pytest.mark.parametrize("claim", Claim)
    @pytest.mark.parametrize("busy_ratio", [0.85, 0.97, 1.0])
    def test_back_to_back_work_is_clear(self, claim: Claim, busy_ratio: float) -> None:
        assert isinstance(self.ask(claim, signals={"utilization_ratio": busy_ratio}), Clear)

    def test_pauses_are_flagged_under_sustained(self) -> None:
        answer = found(self.ask(signals={"utilization_ratio": 0.11, "power_w": 210.0}))
        assert answer.severity is Severity.FLAG
        assert answer.facts["busy_ratio"] == pytest.approx(0.11)

    @pytest.mark.parametrize("claim", [Claim.BURST, Claim.FIXED_CLOCK])
    def test_pauses_are_a_note_where_they_are_meant(self, claim: Claim) -> None:
        assert found(self.ask(claim, signals={"utilization_ratio": 0.11})).severity is Severity.NOTE

    def test_rare_work_that_is_capped_even_so_is_rejected(self) -> None:
        signals = {"utilization_ratio": 0.35, "power_w": 424.0, **NO_CAP_TIME, "power_cap_ns": capped_ns(share=0.45)}
        assert found(self.ask(signals=signals)).severity is Severity.REJECT

    def test_a_capped_warm_up_bounds_what_the_pauses_hide(self) -> None:
        signals: dict[str, Signal] = {
            "utilization_ratio": lambda t: 1.0 if t < -0.2 else 0.1,
            "power_w": 210.0,
            "event_reasons_mask": lambda t: 0x4 if t < -0.2 else 0,
            "sm_clock_mhz": lambda t: 1455 if t < -0.2 else 1980,
        }
        answer = found(self.ask(signals=signals))
        assert answer.severity is Severity.REJECT
        assert answer.effect_ratio == pytest.approx(1455 / 1980 - 1, abs=0.005)
        assert "27% lower" in bursty_duty_cycle.says.format(**answer.facts)

    def test_a_clock_capped_in_bursts_bounds_nothing(self) -> None:
        signals: dict[str, Signal] = {
            "utilization_ratio": 0.3,
            "event_reasons_mask": lambda t: 0x4 if t < -0.2 else 0,
            "sm_clock_mhz": lambda t: 1965 if t < -0.2 else 1980,
        }
        answer = found(self.ask(signals=signals))
        assert (answer.severity, answer.effect_ratio) == (Severity.FLAG, None)

    def test_light_work_that_no_cap_could_reach_makes_a_note(self) -> None:
        assert found(self.ask(signals={"utilization_ratio": 0.57, "power_w": 183.0})).severity is Severity.NOTE

    def test_without_a_known_limit_light_work_is_flagged(self) -> None:
        about = evidence(signals={"utilization_ratio": 0.57, "power_w": 183.0}, device=replace(DEVICE, power_limit_w=None))
        assert found(bursty_duty_cycle.ask(about, Claim.SUSTAINED)).severity is Severity.FLAG

    def test_duty_declared_counts_without_the_driver(self) -> None:
        """What the harness declared counts where the driver says nothing."""
        answer = found(self.ask(signals={"utilization_ratio": None}, declared={"busy_ratio": 0.3}))
        assert answer.facts["by"] == "told"

    @pytest.mark.parametrize("declared", [True, "much", -3.0, float("nan"), 40])
    def test_what_cannot_be_a_share_is_not_believed(self, declared: Fact) -> None:
        signals: dict[str, Signal] = {"utilization_ratio": None, "sm_activity_ratio": None}
        assert isinstance(self.ask(signals=signals, declared={"busy_ratio": declared}), Unobserved)

    def test_sm_activity_speaks_last(self) -> None:
        signals: dict[str, Signal] = {"utilization_ratio": None, "sm_activity_ratio": 0.2}
        assert found(self.ask(signals=signals)).facts["by"] == "SM activity"

    def test_duty_regular_pauses_at_any_utilisation(self) -> None:
        """Regular pauses between iterations are found at any utilisation."""
        times = timings(lambda t: 0.011, 4.0, every_s=0.013)
        answer = found(self.ask(signals={"utilization_ratio": 0.9}, times=times))
        assert answer.severity is Severity.FLAG
        assert answer.facts["gap_s"] == pytest.approx(0.002, abs=1e-4)

    def test_launch_overhead_is_no_pause(self) -> None:
        times = timings(lambda t: 0.00002, 0.5, every_s=0.00003)
        assert isinstance(self.ask(signals={"utilization_ratio": 0.9}, times=times), Clear)

    def test_a_gpu_that_did_nothing_at_all_is_not_called_bursty(self) -> None:
        assert isinstance(self.ask(signals={"utilization_ratio": 0.0}), Unobserved)

    def test_duty_needs_three_refreshes(self) -> None:
        """A window shorter than three refreshes of utilisation is unobserved."""
        signals: dict[str, Signal] = {"utilization_ratio": 0.1, "sm_activity_ratio": None}
        assert isinstance(self.ask(signals=signals, length_s=0.6), Unobserved)

    def test_unobserved_without_telemetry(self) -> None:
        nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
        assert bursty_duty_cycle.ask(nobody, Claim.SUSTAINED) == Unobserved("no daemon is running")


def test_the_family_lists_its_rules_in_the_order_of_reports() -> None:
    assert [rule.name for rule in RULES] == ["regime-change", "bursty-duty-cycle"]
