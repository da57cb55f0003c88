"""Tests of the rules about the order, the noise floor and the number of variants of a comparison."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.budget import Bound, Group, Number
from annotate.evidence import Fact, RecordedWindow, WorkRecord
from annotate.rule import Answer, Clear, Found, Severity, Unobserved
from annotate.rules.comparison_design import aa_noise_floor_missing, multiple_looks, order_bias
from tests.annotate.builders import evidence
from tests.annotate.occurrences.comparison import compared, times
from tests.annotate.rules.asking import ask


def severity(answer: Answer) -> Severity | None:
    return answer.severity if isinstance(answer, Found) else None


def pair_bound(answer: Answer) -> Bound:
    assert isinstance(answer, Found), answer
    (bound,) = answer.bounds
    assert (bound.number, bound.group, answer.severity) == (Number.RATIO, Group.PAIR, Severity.NOTE)
    return bound


class TestOrderBias:
    def test_sequential_order_is_bounded_with_both_figures(self) -> None:
        answer = ask(order_bias, compared(evidence(timings=times(2.04e-3)), evidence(timings=times(2e-3))))
        bound = pair_bound(answer)
        assert (bound.ratio, bound.estimate) == (0.032, None)  # without a sign, the bound never rejects
        assert order_bias.says.format(**answer.facts).endswith("3.2%, against the +2.0% between them")  # type: ignore[union-attr]

    def test_work_record_gives_the_bound_of_the_order(self) -> None:
        """The bound is about √2 times the t value 2.78 times the standard deviation of the recorded medians, 0.1 %."""
        record = WorkRecord(tuple(RecordedWindow(median_s=2e-3 * (1 + each)) for each in (-1e-3, -1e-3, 0.0, 1e-3, 1e-3)))
        both = [replace(evidence(timings=times(2e-3, seed=seed)), record=record) for seed in (1, 2)]
        assert pair_bound(ask(order_bias, compared(*both))).ratio == pytest.approx(2**0.5 * 2.78e-3, rel=0.15)
        assert pair_bound(ask(order_bias, compared(both[0], replace(both[1], record=None)))).ratio == 0.032

    def test_overlapping_windows_are_clear_unless_sequential(self) -> None:
        assert isinstance(ask(order_bias, compared(evidence(), evidence(), after_s=0.1)), Clear)
        declared = compared(evidence(declared={"design": "sequential"}), evidence(), after_s=0.1)
        assert pair_bound(ask(order_bias, declared))

    def test_declared_interleaving_does_not_clear(self) -> None:
        assert pair_bound(ask(order_bias, compared(evidence(declared={"design": "interleaved"}), evidence())))


class TestFloor:
    @pytest.mark.parametrize("floor", [None, "small", True, -0.1, 0.0, 2.0, float("nan")])
    def test_missing_or_invalid_floor_is_a_note(self, floor: Fact) -> None:
        about = compared(evidence(declared={"aa_floor_ratio": floor}), evidence())
        assert severity(ask(aa_noise_floor_missing, about)) is Severity.NOTE

    def test_measured_noise_floor_is_clear(self) -> None:
        about = compared(evidence(declared={"aa_floor_ratio": 0.001}), evidence())
        assert ask(aa_noise_floor_missing, about) == Clear({"aa_floor_ratio": 0.001})


class TestMultipleLooks:
    def test_best_of_twenty_looks_better_by_chance(self) -> None:
        answer = ask(multiple_looks, compared(evidence(declared={"variants_count": 20}), evidence()))
        assert isinstance(answer, Found)
        bound = pair_bound(answer)
        assert bound.ratio == answer.facts["luck_ratio"]
        assert bound.estimate is not None
        assert (bound.estimate.low_ratio, bound.estimate.high_ratio) == (-(bound.ratio or 0.0), 0.0)
        assert answer.facts["luck_ratio"] == pytest.approx(0.026, abs=0.001)
        assert answer.facts["level_ratio"] == pytest.approx(0.0025)

    def test_chance_follows_from_the_windows_times(self) -> None:
        about = evidence(declared={"variants_count": 20}, timings=times(2e-3))
        answer = ask(multiple_looks, compared(about, evidence()))
        assert isinstance(answer, Found)
        assert 0 < float(answer.facts["luck_ratio"] or 0) < 0.001

    def test_single_variant_is_clear_and_invalid_unobserved(self) -> None:
        assert isinstance(ask(multiple_looks, compared(evidence(declared={"variants_count": 1}), evidence())), Clear)
        for nonsense in (None, True, 0, -4, 2.5, "many", 10**12):
            about = compared(evidence(declared={"variants_count": nonsense}), evidence())
            assert isinstance(ask(multiple_looks, about), Unobserved)
