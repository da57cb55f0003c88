"""Tests of mean-vs-median-gap, and of all rules of numbers, shape and warmup with unusual times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.claims import Claim
from annotate.evidence import Evidence, Timings
from annotate.rule import Clear, Found, Rule, Severity, Unobserved
from annotate.rules.numbers import RETIRED, mean_vs_median_gap
from annotate.rules.numbers import RULES as OF_NUMBERS
from annotate.rules.shape import RULES as OF_SHAPE
from annotate.rules.warmup import RULES as OF_WARMUP
from tests.annotate.builders import BEGIN_NS, evidence
from tests.annotate.occurrences.numbers import even, window
from tests.annotate.rules.asking import ask
from tests.examples import share_of

ALL = (*OF_NUMBERS, *OF_SHAPE, *OF_WARMUP)


class TestEveryRuleAboutTimes:
    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    @pytest.mark.parametrize("claim", Claim)
    def test_even_independent_times_are_clear(self, rule: Rule, claim: Claim) -> None:
        assert isinstance(ask(rule, window(even(4000)), claim), Clear)

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    def test_missing_times_are_unobserved(self, rule: Rule) -> None:
        assert isinstance(ask(rule, evidence()), Unobserved)

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    @pytest.mark.parametrize("nonsense", [np.nan, -1.0, 0.0, np.inf])
    def test_invalid_durations_are_unobserved(self, rule: Rule, nonsense: float) -> None:
        assert isinstance(ask(rule, window(np.full(50, 1e-3))), Clear)
        at_ns = BEGIN_NS + np.arange(50, dtype=np.int64) * 1_000_000
        assert isinstance(ask(rule, evidence(timings=Timings(at_ns, np.full(50, nonsense)))), Unobserved)

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    def test_times_outside_the_window_do_not_count(self, rule: Rule) -> None:
        at_ns = BEGIN_NS - 10_000_000_000 + np.arange(50, dtype=np.int64) * 1_000_000
        assert isinstance(ask(rule, evidence(timings=Timings(at_ns, np.full(50, 1e-3)))), Unobserved)

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
    @pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 11, 12, 13, 30])
    def test_few_equal_times_get_an_answer(self, rule: Rule, count: int) -> None:
        assert ask(rule, window(np.full(count, 20e-3)))


def label(about: Evidence) -> str:
    answer = ask(mean_vs_median_gap, about)
    assert isinstance(answer, Found), answer
    assert (answer.severity, answer.bounds) == (Severity.NOTE, ())
    return mean_vs_median_gap.says.format(**answer.facts)


class TestMeanVsMedianGap:
    def test_label_names_mean_and_median(self) -> None:
        """If 150 of 6000 launches of 1 ms take 63 ms, the mean is (5850 + 150 * 63) / 6000 = 2.55 ms."""
        took_s = even()
        took_s[np.random.default_rng(5).choice(6000, 150, replace=False)] = 63e-3
        assert label(window(took_s)) == "mean 2.55 ms, median 1 ms (by cold and late iterations alone)"

    def test_gap_without_late_iterations_names_no_cause(self) -> None:
        took_s = even()
        took_s[:2500] *= 0.8
        assert label(window(took_s)) == "mean 917 µs, median 998 µs"

    @given(
        st.integers(0, 2**32 - 1),
        st.floats(0.0, 0.3),
        st.floats(0.0, 4.0),
        st.floats(0.0, 30.0),
        st.sampled_from([60, 600, 6000]),
    )
    @settings(max_examples=share_of(60))
    def test_mean_median_gap_of_five_per_cent_is_stated(
        self, seed: int, share: float, late: float, cold: float, count: int
    ) -> None:
        rng = np.random.default_rng(seed)
        took_s = even(count, seed=seed)
        took_s *= np.where(rng.random(count) < share, 1.0 + late * rng.random(count), 1.0)
        took_s[0] *= 1.0 + cold
        if took_s.mean() > 1.05 * np.median(took_s):
            assert label(window(took_s))

    def test_mean_within_three_per_cent_is_clear(self) -> None:
        took_s = even()
        took_s[::10] *= 1.2
        assert isinstance(ask(mean_vs_median_gap, window(took_s)), Clear)


def test_retired_rules_of_numbers_name_their_replacement() -> None:
    assert not set(RETIRED) & {rule.name for rule in OF_NUMBERS}
    assert all("proof 5" in place for place in RETIRED.values())
