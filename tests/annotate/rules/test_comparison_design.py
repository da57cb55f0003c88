"""Rules about the order, the noise floor and the number of variants of a comparison."""

from __future__ import annotations

import pytest

from annotate.claims import Claim
from annotate.evidence import Evidence, Fact
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.comparison_design import aa_noise_floor_missing, multiple_looks, order_bias
from tests.annotate.builders import evidence
from tests.annotate.occurrences.comparison import compared, times


def ask(rule: Rule, about: Evidence) -> Answer:
    return rule.ask(about, Claim.SUSTAINED)


def severity(answer: Answer) -> Severity | None:
    return answer.severity if isinstance(answer, Found) else None


class TestOrderBias:
    def test_one_after_the_other_is_flagged_with_both_figures(self) -> None:
        about = compared(evidence(timings=times(2.04e-3)), evidence(timings=times(2e-3)))
        answer = ask(order_bias, about)
        assert severity(answer) is Severity.FLAG
        assert order_bias.says.format(**answer.facts).endswith("3.2%, against the +2.0% between them")  # type: ignore[union-attr]

    def test_windows_that_overlap_are_clear_unless_told_otherwise(self) -> None:
        assert isinstance(ask(order_bias, compared(evidence(), evidence(), after_s=0.1)), Clear)
        declared = compared(evidence(declared={"design": "sequential"}), evidence(), after_s=0.1)
        assert severity(ask(order_bias, declared)) is Severity.FLAG

    def test_the_word_of_the_measured_process_clears_nothing(self) -> None:
        about = compared(evidence(declared={"design": "interleaved"}), evidence())
        assert severity(ask(order_bias, about)) is Severity.FLAG


class TestFloor:
    @pytest.mark.parametrize("floor", [None, "small", True, -0.1, 0.0, 2.0, float("nan")])
    def test_no_floor_or_nonsense_for_one_is_a_note(self, floor: Fact) -> None:
        about = compared(evidence(declared={"aa_floor_ratio": floor}), evidence())
        assert severity(ask(aa_noise_floor_missing, about)) is Severity.NOTE

    def test_a_measured_floor_is_clear(self) -> None:
        about = compared(evidence(declared={"aa_floor_ratio": 0.001}), evidence())
        assert ask(aa_noise_floor_missing, about) == Clear({"aa_floor_ratio": 0.001})


class TestMultipleLooks:
    def test_the_best_of_twenty_looks_better_by_luck(self) -> None:
        answer = ask(multiple_looks, compared(evidence(declared={"variants_count": 20}), evidence()))
        assert isinstance(answer, Found)
        assert answer.severity is Severity.FLAG
        assert answer.facts["luck_ratio"] == pytest.approx(0.026, abs=0.001)
        assert answer.facts["level_ratio"] == pytest.approx(0.0025)

    def test_its_own_times_say_how_large_luck_is(self) -> None:
        about = evidence(declared={"variants_count": 20}, timings=times(2e-3))
        answer = ask(multiple_looks, compared(about, evidence()))
        assert isinstance(answer, Found)
        assert 0 < float(answer.facts["luck_ratio"] or 0) < 0.001

    def test_one_variant_is_clear_and_nonsense_or_silence_unobserved(self) -> None:
        assert isinstance(ask(multiple_looks, compared(evidence(declared={"variants_count": 1}), evidence())), Clear)
        for nonsense in (None, True, 0, -4, 2.5, "many", 10**12):
            about = compared(evidence(declared={"variants_count": nonsense}), evidence())
            assert isinstance(ask(multiple_looks, about), Unobserved)
