"""Outliers with their pattern, and two speeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.claims import Claim
from annotate.evidence import Evidence, Host, Values
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.shape import bimodal, outliers
from tests.annotate.builders import capped_ns, evidence
from tests.annotate.occurrences.numbers import even, timed, window


def ask(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED) -> Answer:
    return rule.ask(about, claim)


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    return answer


def with_late(step: int, excess_s: float, *, count: int = 6000) -> Values:
    took_s = even(count)
    took_s[np.arange(7, count, step)] += excess_s
    return took_s


class TestOutliers:
    def test_outliers_of_equal_length_are_time_slices(self) -> None:
        """A few of the same milliseconds are turns of another process."""
        answer = found(ask(outliers, window(with_late(1500, 2.3e-3))))
        assert answer.severity is Severity.FLAG
        assert answer.facts["kind"] == "time-slice"
        assert answer.facts["outliers_count"] == 4

    def test_long_delays_of_many_lengths_are_launches_that_waited(self) -> None:
        took_s = even()
        late = np.random.default_rng(2).choice(6000, 60, replace=False)
        took_s[late] += np.random.default_rng(2).exponential(0.04, 60)
        answer = found(ask(outliers, window(took_s)))
        assert (answer.severity, answer.facts["kind"]) == (Severity.FLAG, "host")

    def test_outliers_shorter_beside_waiting_threads(self) -> None:
        """Shorter delays are too where the system saw threads wait."""
        took_s = even()
        late = np.random.default_rng(2).choice(6000, 600, replace=False)
        took_s[late] += np.random.default_rng(2).uniform(0.2e-3, 0.9e-3, 600)
        assert found(ask(outliers, window(took_s))).facts["kind"] == "scattered"
        about = replace(window(took_s), host=Host(span_s=6.0, run_wait_s=2.0))
        assert found(ask(outliers, about)).facts["kind"] == "host"

    def test_outliers_every_tenth_are_noted(self) -> None:
        """Every tenth iteration is the harness's own doing and noted."""
        answer = found(ask(outliers, window(with_late(10, 0.4e-3))))
        assert (answer.severity, answer.facts["kind"]) == (Severity.NOTE, "regular")
        assert "10th" in str(answer.facts["pattern"])

    def test_groups_at_even_distances_have_a_rhythm(self) -> None:
        took_s = even()
        for begin in range(200, 6000, 500):
            took_s[begin : begin + 15] *= np.random.default_rng(begin).uniform(1.5, 4.0, 15)
        answer = found(ask(outliers, window(took_s)))
        assert (answer.severity, answer.facts["kind"]) == (Severity.FLAG, "periodic")

    def test_a_swinging_clock_makes_no_outliers(self) -> None:
        wave = 1.0 + 0.03 * np.sin(2 * np.pi * np.arange(20000) / 5000.0)
        assert isinstance(ask(outliers, window(even(20000, took_s=0.2e-3) * wave)), Clear)

    def test_cold_first_calls_are_another_rules(self) -> None:
        took_s = even()
        took_s[:4] = 0.3, 0.05, 0.02, 0.004
        assert isinstance(ask(outliers, window(took_s)), Clear)

    def test_outliers_severity_follows_cost(self) -> None:
        """What costs little is noted and what costs nothing is clear."""
        late = np.random.default_rng(5).choice(6000, 120, replace=False)
        took_s = even()
        took_s[late] += np.random.default_rng(6).uniform(0.2e-3, 0.7e-3, 120)
        answer = found(ask(outliers, window(took_s)))
        assert answer.severity is Severity.NOTE
        assert outliers.says.format(**answer.facts) == "120 of 6000 iterations lie apart and add 0.9% to the time, scattered"
        took_s = even()
        took_s[late] *= 1.1
        clear = ask(outliers, window(took_s))
        assert isinstance(clear, Clear)
        assert clear.facts["outliers_count"] == 120

    def test_nothing_is_dropped_silently(self) -> None:
        facts = found(ask(outliers, window(with_late(700, 2.3e-3)))).facts
        assert float(facts["mean_s"] or 0) > float(facts["trimmed_mean_s"] or 0)

    def test_five_iterations_have_no_neighbours(self) -> None:
        assert isinstance(ask(outliers, window(even(5))), Unobserved)


class TestBimodal:
    TURNS = np.arange(6000) // 100 % 2

    def two(self, ratio: float = 1.1) -> Values:
        return np.asarray(even() * np.where(self.TURNS, ratio, 1.0), np.float64)

    def test_two_speeds_in_turns_are_flagged_and_named(self) -> None:
        answer = found(ask(bimodal, window(self.two())))
        assert answer.severity is Severity.FLAG
        assert answer.facts["separation_ratio"] == pytest.approx(0.1, abs=0.01)
        assert answer.facts["fast_ratio"] == pytest.approx(0.5, abs=0.02)

    def test_bimodal_every_second_iteration_is_flagged(self) -> None:
        """Every second iteration is too for no centre stands for both."""
        took_s = even() * np.where(np.arange(6000) % 2, 1.1, 1.0)
        assert found(ask(bimodal, window(took_s))).severity is Severity.FLAG

    def test_every_tenth_iteration_is_noted(self) -> None:
        took_s = even() * np.where(np.arange(6000) % 10, 1.0, 1.2)
        assert found(ask(bimodal, window(took_s))).severity is Severity.NOTE

    @pytest.mark.parametrize("ratio", [1.0, 1.015])
    def test_less_than_two_per_cent_apart_is_clear(self, ratio: float) -> None:
        assert isinstance(ask(bimodal, window(self.two(ratio))), Clear)

    def test_one_switch_is_a_change_and_not_two_modes(self) -> None:
        assert isinstance(ask(bimodal, window(even() * np.where(np.arange(6000) < 3000, 1.0, 1.1))), Clear)

    def test_a_swinging_clock_is_not_two_modes(self) -> None:
        wave = 1.0 + 0.03 * np.sin(2 * np.pi * np.arange(20000) / 500.0)
        assert isinstance(ask(bimodal, window(even(20000) * wave)), Clear)

    def test_a_long_tail_is_not_two_modes(self) -> None:
        took_s = 1e-3 * (1.0 + np.random.default_rng(1).exponential(0.5, 6000))
        assert isinstance(ask(bimodal, window(took_s)), Clear)

    def test_quantised_times_are_not_many_modes(self) -> None:
        took_s = np.round(even(6000, took_s=10e-6, noise_ratio=0.05) / 0.5e-6) * 0.5e-6
        assert isinstance(ask(bimodal, window(took_s)), Clear)

    def test_bimodal_explained_by_the_clock(self) -> None:
        """A clock that explains them is said and notes what the controller does."""
        clock = np.where(self.TURNS, 1300.0, 1352.0)
        near = replace(window(self.two(1.04)), timings=timed(self.two(1.04), clock_mhz=clock))
        assert found(ask(bimodal, near)).severity is Severity.NOTE
        assert "explains" in str(found(ask(bimodal, near)).facts["cause"])

    def test_clocks_far_apart_explain_and_are_flagged_all_the_same(self) -> None:
        clock = np.where(self.TURNS, 1500.0, 1950.0)
        far = replace(window(self.two(1.3)), timings=timed(self.two(1.3), clock_mhz=clock))
        assert found(ask(bimodal, far)).severity is Severity.FLAG

    def test_the_same_clock_for_both_is_said(self) -> None:
        about = replace(window(self.two(1.04)), timings=timed(self.two(1.04), clock_mhz=np.full(6000, 1400.0)))
        answer = found(ask(bimodal, about))
        assert answer.severity is Severity.FLAG
        assert "same true clock" in str(answer.facts["cause"])

    def test_under_a_cap_two_near_speeds_are_the_controllers(self) -> None:
        timings = timed(self.two(1.035))
        signals = {
            "power_cap_ns": capped_ns(),
            "power_violation_ns": capped_ns(),
            "event_reasons_mask": 0x4,
            "sm_clock_mhz": 1455,
        }
        assert found(ask(bimodal, evidence(length_s=6.2, signals=signals, timings=timings))).severity is Severity.NOTE
        assert found(ask(bimodal, evidence(length_s=6.2, timings=timings))).severity is Severity.FLAG
