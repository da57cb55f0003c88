"""Noise, too few iterations, correlation, and a mean that is not the median."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.claims import Claim
from annotate.evidence import Evidence, Timings
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.numbers import RULES as OF_NUMBERS
from annotate.rules.numbers import autocorrelated, mean_vs_median_gap, noisy, too_few_samples
from annotate.rules.shape import RULES as OF_SHAPE
from annotate.rules.shape import outliers
from annotate.rules.warmup import RULES as OF_WARMUP
from annotate.rules.warmup import cold_start
from tests.annotate.builders import BEGIN_NS, evidence
from tests.annotate.occurrences.numbers import even, window
from tests.examples import share_of

ALL = (*OF_NUMBERS, *OF_SHAPE, *OF_WARMUP)


def ask(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED) -> Answer:
    return rule.ask(about, claim)


def severity(answer: Answer) -> Severity:
    assert isinstance(answer, Found), answer
    return answer.severity


class TestEveryRuleAboutTimes:
    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    @pytest.mark.parametrize("claim", Claim)
    def test_even_independent_times_are_clear(self, rule: Rule, claim: Claim) -> None:
        assert isinstance(ask(rule, window(even(4000)), claim), Clear)

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    def test_no_times_are_unobserved(self, rule: Rule) -> None:
        assert isinstance(ask(rule, evidence()), Unobserved)

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    @pytest.mark.parametrize("nonsense", [np.nan, -1.0, 0.0, np.inf])
    def test_times_that_are_no_durations_are_unobserved(self, rule: Rule, nonsense: float) -> None:
        assert isinstance(ask(rule, window(np.full(50, 1e-3))), Clear)
        at_ns = BEGIN_NS + np.arange(50, dtype=np.int64) * 1_000_000
        assert isinstance(ask(rule, evidence(timings=Timings(at_ns, np.full(50, nonsense)))), Unobserved)

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    def test_times_outside_the_window_do_not_count(self, rule: Rule) -> None:
        at_ns = BEGIN_NS - 10_000_000_000 + np.arange(50, dtype=np.int64) * 1_000_000
        assert isinstance(ask(rule, evidence(timings=Timings(at_ns, np.full(50, 1e-3)))), Unobserved)

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    @pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 11, 12, 13, 30])
    def test_few_equal_times_break_nothing(self, rule: Rule, count: int) -> None:
        assert ask(rule, window(np.full(count, 20e-3)))


class TestNoisy:
    def test_a_median_known_to_less_than_three_per_cent_is_flagged(self) -> None:
        assert severity(ask(noisy, window(even(100, noise_ratio=0.25, took_s=20e-3)))) is Severity.FLAG

    def test_a_guess_rejects(self) -> None:
        took_s = 20e-3 * np.exp(np.random.default_rng(3).standard_normal(100))
        assert severity(ask(noisy, window(took_s))) is Severity.REJECT

    def test_between_one_and_three_per_cent_is_noted(self) -> None:
        assert severity(ask(noisy, window(even(100, noise_ratio=0.09, took_s=20e-3)))) is Severity.NOTE

    def test_wide_iterations_whose_median_is_well_known_are_clear(self) -> None:
        assert isinstance(ask(noisy, window(even(20000, noise_ratio=0.1))), Clear)

    def test_noisy_limit_cycle_is_at_most_noted(self) -> None:
        """A limit cycle of three per cent is no more than noted in four of its periods."""
        wave = 1.0 + 0.03 * np.sin(2 * np.pi * np.arange(20000) / 5000.0)
        assert severity(ask(noisy, window(even(20000, took_s=0.2e-3) * wave))) is Severity.NOTE

    def test_thirty_even_iterations_are_enough(self) -> None:
        assert isinstance(ask(noisy, window(even(30, took_s=10e-3))), Clear)

    def test_a_drift_leaves_the_width_unknown(self) -> None:
        assert isinstance(ask(noisy, window(even(6000) * np.linspace(1.0, 1.3, 6000))), Unobserved)


class TestAutocorrelated:
    def test_slow_swings_leave_few_independent_values(self) -> None:
        wave = 1.0 + 0.03 * np.sin(np.arange(6000) / 160.0)
        answer = ask(autocorrelated, window(even() * wave))
        assert severity(answer) is Severity.NOTE
        assert isinstance(answer, Found)
        assert 1 <= float(answer.facts["effective_count"] or 0) < 600

    def test_one_very_late_iteration_does_not_hide_them(self) -> None:
        took_s = even() * (1.0 + 0.03 * np.sin(np.arange(6000) / 160.0))
        took_s[3000] = 1.0
        assert severity(ask(autocorrelated, window(took_s))) is Severity.NOTE

    def test_autocorrelated_own_times_have_an_interval(self) -> None:
        """Times that gpuwatch took come with an interval that knows."""
        about = window(even() * (1.0 + 0.03 * np.sin(np.arange(6000) / 160.0)))
        answer = ask(autocorrelated, replace(about, declared={"timer": "events"}))
        assert isinstance(answer, Clear)
        assert float(answer.facts["effective_count"] or 0) < 600
        assert severity(ask(autocorrelated, replace(about, declared={"timer": "caller"}))) is Severity.NOTE

    def test_a_mean_that_is_well_known_all_the_same_is_clear(self) -> None:
        assert isinstance(ask(autocorrelated, window(even() * (1.0 + 0.005 * np.sin(np.arange(6000) / 160.0)))), Clear)


class TestMeanVsMedianGap:
    def test_starved_launches_draw_the_mean_away(self) -> None:
        took_s = even()
        took_s[np.random.default_rng(5).choice(6000, 150, replace=False)] = 63e-3
        about = window(took_s)
        answer = ask(mean_vs_median_gap, about)
        # The late ones are the finding, of their own rule.
        assert severity(answer) is Severity.NOTE
        assert severity(ask(outliers, about)) is Severity.FLAG

    def test_what_a_harness_does_at_every_nth_iteration_is_said_here(self) -> None:
        took_s = even()
        took_s[::10] += np.random.default_rng(5).uniform(0.4e-3, 1.2e-3, 600)
        about = window(took_s)
        assert severity(ask(mean_vs_median_gap, about)) is Severity.FLAG
        assert severity(ask(outliers, about)) is Severity.NOTE

    @given(
        st.integers(0, 2**32 - 1),
        st.floats(0.0, 0.3),
        st.floats(0.0, 4.0),
        st.floats(0.0, 30.0),
        st.sampled_from([60, 600, 6000]),
    )
    @settings(max_examples=share_of(60))
    def test_mean_median_gap_of_five_per_cent_is_flagged(
        self, seed: int, share: float, late: float, cold: float, count: int
    ) -> None:
        """A gap of five per cent is always worse than noted by some rule."""
        rng = np.random.default_rng(seed)
        took_s = even(count, seed=seed)
        took_s *= np.where(rng.random(count) < share, 1.0 + late * rng.random(count), 1.0)
        took_s[0] *= 1.0 + cold
        about = window(took_s)
        if took_s.mean() > 1.05 * np.median(took_s):
            answers = [ask(rule, about) for rule in (mean_vs_median_gap, outliers, cold_start)]
            assert any(isinstance(answer, Found) and answer.severity is not Severity.NOTE for answer in answers)

    def test_between_three_and_five_per_cent_is_noted(self) -> None:
        took_s = even()
        took_s[::10] *= 1.4
        assert severity(ask(mean_vs_median_gap, window(took_s))) is Severity.NOTE

    def test_a_mean_far_below_the_median_counts_as_well(self) -> None:
        took_s = even()
        took_s[:2500] *= 0.8
        assert severity(ask(mean_vs_median_gap, window(took_s))) is Severity.FLAG


class TestTooFewSamples:
    def test_five_are_flagged_and_reject_in_a_comparison(self) -> None:
        about = window(even(5, took_s=20e-3))
        assert severity(ask(too_few_samples, about)) is Severity.FLAG
        assert severity(ask(too_few_samples, replace(about, baseline=evidence()))) is Severity.REJECT
        assert severity(ask(too_few_samples, replace(about, declared={"design": "sequential"}))) is Severity.REJECT

    def test_a_design_that_is_no_word_changes_nothing(self) -> None:
        about = replace(window(even(5, took_s=20e-3)), declared={"design": 7})
        assert severity(ask(too_few_samples, about)) is Severity.FLAG

    def test_two_hundred_and_fifty_of_a_long_kernel_are_enough(self) -> None:
        assert isinstance(ask(too_few_samples, window(even(250, took_s=13e-3, noise_ratio=0.015))), Clear)

    def test_where_the_median_has_an_interval_that_decides(self) -> None:
        about = window(even(50, noise_ratio=0.15))
        assert severity(ask(noisy, about)) is Severity.FLAG
        assert isinstance(ask(too_few_samples, about), Clear)

    def test_few_that_resemble_those_before_need_more(self) -> None:
        about = window(even(50, noise_ratio=0.02) * (1.0 + 0.1 * np.sin(np.arange(50) / 8.0)))
        assert isinstance(ask(noisy, about), Unobserved)
        answer = ask(too_few_samples, about)
        assert severity(answer) is Severity.FLAG
        assert isinstance(answer, Found)
        assert int(answer.facts["needed_count"] or 0) > 200

    def test_three_iterations_of_seconds_are_enough(self) -> None:
        assert isinstance(ask(too_few_samples, window(even(3, took_s=2.0))), Clear)
        assert severity(ask(too_few_samples, window(even(2, took_s=2.0)))) is Severity.FLAG
