"""First calls that were cold, and compilations later on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.claims import Claim
from annotate.evidence import Evidence, Host, Values
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.warmup import cold_start, mid_run_compile
from tests.annotate.occurrences.numbers import even, window


def ask(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED) -> Answer:
    return rule.ask(about, claim)


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    return answer


def beginning(*first_s: float, count: int = 3000) -> Values:
    took_s = even(count)
    took_s[: len(first_s)] = first_s
    return took_s


class TestColdStart:
    def test_cold_start_is_flagged_by_its_effect_on_the_mean(self) -> None:
        """A first call of seventy milliseconds is flagged for what it does to the mean."""
        answer = found(ask(cold_start, window(beginning(0.07, 0.01, 0.002))))
        assert answer.severity is Severity.FLAG
        assert answer.facts["cold_count"] == 3
        assert answer.effect_ratio == pytest.approx(0.026, abs=0.005)

    def test_in_a_short_series_it_rejects(self) -> None:
        assert found(ask(cold_start, window(beginning(0.07, count=60)))).severity is Severity.REJECT

    def test_cold_start_is_noted_from_a_thousandth(self) -> None:
        """A first call is noted for a thousandth of the mean and clear for less."""
        answer = found(ask(cold_start, window(beginning(0.01))))
        assert answer.severity is Severity.NOTE
        assert (
            cold_start.says.format(**answer.facts)
            == "the first call was cold, up to 10 times the median, which makes the mean 0.3% longer"
        )
        clear = ask(cold_start, window(beginning(0.002)))
        assert isinstance(clear, Clear)
        assert clear.facts["cold_count"] == 1

    def test_nobody_having_warmed_up_is_a_limit_of_its_own(self) -> None:
        about = window(beginning(0.002))
        assert found(ask(cold_start, replace(about, declared={"warmup_count": 0}))).severity is Severity.FLAG

    @pytest.mark.parametrize("declared", [True, "0", -3, 5, None, float("nan")])
    def test_other_words_about_a_warm_up_change_nothing(self, declared: object) -> None:
        about = replace(window(beginning(0.01)), declared={"warmup_count": declared})  # type: ignore[dict-item]  # what a client may send
        assert found(ask(cold_start, about)).severity is Severity.NOTE

    def test_a_warm_window_told_to_have_no_warm_up_is_clear(self) -> None:
        assert isinstance(ask(cold_start, replace(window(even()), declared={"warmup_count": 0})), Clear)

    def test_a_fast_beginning_is_not_cold(self) -> None:
        took_s = even()
        took_s[:300] *= 0.86
        assert isinstance(ask(cold_start, window(took_s)), Clear)

    def test_a_single_iteration_is_unobserved(self) -> None:
        assert isinstance(ask(cold_start, window(even(1))), Unobserved)


class TestMidRunCompile:
    @staticmethod
    def spiked(*at: int, took_s: float = 0.2) -> Evidence:
        series = even(6000)
        series[list(at)] = took_s
        return window(series)

    def test_compile_is_flagged_and_placed(self) -> None:
        """One iteration of a fifth of a second is flagged and placed."""
        answer = found(ask(mid_run_compile, self.spiked(2000)))
        assert answer.severity is Severity.FLAG
        assert answer.facts["before_count"] == 2000
        assert answer.span_ns is not None

    def test_a_short_one_is_only_noted(self) -> None:
        assert found(ask(mid_run_compile, self.spiked(2000, took_s=0.03))).severity is Severity.NOTE

    def test_new_processes_make_it_more_than_a_hiccup(self) -> None:
        about = replace(self.spiked(2000, took_s=0.03), host=Host(span_s=6.0, processes_born_count=2, threads_born_count=0))
        answer = found(ask(mid_run_compile, about))
        assert answer.severity is Severity.FLAG
        assert "2 processes" in str(answer.facts["sign"])

    def test_where_threads_waited_for_a_processor_it_is_no_compiler(self) -> None:
        about = replace(self.spiked(2000), host=Host(span_s=6.0, run_wait_s=2.0))
        assert isinstance(ask(mid_run_compile, about), Clear)

    def test_many_late_iterations_have_another_cause(self) -> None:
        assert isinstance(ask(mid_run_compile, self.spiked(*range(100, 6000, 100))), Clear)

    def test_compile_leaves_the_first_call_to_cold_start(self) -> None:
        """The first call is a cold start and no compilation in the middle."""
        assert isinstance(ask(mid_run_compile, self.spiked(0)), Clear)

    def test_a_neighbours_turn_is_no_compilation(self) -> None:
        assert isinstance(ask(mid_run_compile, window(even(6000, took_s=0.1e-3) + (np.arange(6000) == 70) * 2.3e-3)), Clear)
