"""Tests of the rule about cold first calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.budget import Number
from annotate.evidence import Values
from annotate.rule import Answer, Clear, Found, Severity, Unobserved
from annotate.rules.warmup import cold_start
from tests.annotate.occurrences.numbers import even, window
from tests.annotate.rules.asking import ask


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    assert answer.severity is Severity.NOTE  # the judge derives the severity from the bounds
    return answer


def value_ratio(answer: Answer, number: Number) -> float:
    (bound,) = (each for each in found(answer).bounds if each.number is number)
    assert bound.estimate is not None
    assert bound.ratio == abs(bound.estimate.value_ratio)
    return bound.estimate.value_ratio


def beginning(*first_s: float, count: int = 3000) -> Values:
    took_s = even(count)
    took_s[: len(first_s)] = first_s
    return took_s


class TestColdStart:
    def test_cold_start_bound_is_its_cost(self) -> None:
        """Three cold calls take 82 ms in all, 79 ms more than warm ones: 2.6 % of the mean of 3000 calls."""
        answer = found(ask(cold_start, window(beginning(0.07, 0.01, 0.002))))
        assert answer.facts["cold_count"] == 3
        assert value_ratio(answer, Number.MEAN) == pytest.approx(0.079 / 3.0, rel=0.01)
        assert value_ratio(answer, Number.MEDIAN) == pytest.approx(0.0, abs=0.001)
        lost_ratio = 0.079 / window(beginning(0.07, 0.01, 0.002)).window.length_s
        assert value_ratio(answer, Number.THROUGHPUT) == pytest.approx(-lost_ratio, rel=0.01)

    def test_cold_start_bound_is_larger_in_a_short_series(self) -> None:
        """A first call of 70 ms before 59 calls of 1 ms more than doubles the mean."""
        answer = ask(cold_start, window(beginning(0.07, count=60)))
        assert value_ratio(answer, Number.MEAN) == pytest.approx(0.069 / 0.06, rel=0.01)

    def test_cold_first_call_has_a_sentence(self) -> None:
        answer = found(ask(cold_start, window(beginning(0.01))))
        assert (
            cold_start.says.format(**answer.facts)
            == "the first call was cold, up to 10 times the median: this lengthens the mean by 0.3%"
        )

    def test_missing_warm_up_is_reported(self) -> None:
        about = window(beginning(0.01))
        answer = found(ask(cold_start, replace(about, declared={"warmup_count": 0})))
        assert cold_start.says.format(**answer.facts).endswith(", and there was no warm-up")
        assert answer.bounds == found(ask(cold_start, about)).bounds

    @pytest.mark.parametrize("declared", [True, "0", -3, 5, None, float("nan")])
    def test_other_declared_warm_ups_change_nothing(self, declared: object) -> None:
        about = window(beginning(0.01))
        other = replace(about, declared={"warmup_count": declared})  # type: ignore[dict-item]  # what a client may send
        assert ask(cold_start, other) == ask(cold_start, about)

    def test_warm_window_declared_without_warm_up_is_clear(self) -> None:
        assert isinstance(ask(cold_start, replace(window(even()), declared={"warmup_count": 0})), Clear)

    def test_fast_start_is_not_cold(self) -> None:
        took_s = even()
        took_s[:300] *= 0.86
        assert isinstance(ask(cold_start, window(took_s)), Clear)

    def test_cold_start_of_a_single_iteration_is_unobserved(self) -> None:
        assert isinstance(ask(cold_start, window(even(1))), Unobserved)
