"""Tests of the rules about outliers with their pattern, and two speeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from annotate.budget import Group, Number
from annotate.evidence import Host, Pause, Values
from annotate.rule import Answer, Clear, Severity, Unobserved
from annotate.rules.shape import bimodal, outliers
from annotate.times.outlying import beyond_swing, outlying
from tests.annotate.builders import Signal, capped_ns, evidence
from tests.annotate.occurrences.numbers import even, timed, window
from tests.annotate.rules.asking import ask, found

CAPPED: Mapping[str, Signal] = {
    "power_cap_ns": capped_ns(),
    "power_violation_ns": capped_ns(),
    "event_reasons_mask": 0x4,
    "sm_clock_mhz": 1455,
}


def with_late(step: int, excess_s: float, *, count: int = 6000) -> Values:
    took_s = even(count)
    took_s[np.arange(7, count, step)] += excess_s
    return took_s


def ratios(answer: Answer) -> dict[Number, float | None]:
    return {bound.number: bound.ratio for bound in found(answer).bounds}


class TestOutliers:
    def test_outliers_of_equal_length_are_time_slices(self) -> None:
        """Four turns of 2.3 ms among 6000 times of 1 ms change mean and throughput by 0.15 %, but not the median."""
        answer = found(ask(outliers, window(with_late(1500, 2.3e-3))))
        assert answer.severity is Severity.NOTE  # the judge derives the severity from the bounds
        assert answer.facts["kind"] == "time-slice"
        assert answer.facts["outliers_count"] == 4
        assert {bound.group for bound in answer.bounds} == {Group.INSIDE}
        assert ratios(answer)[Number.MEAN] == pytest.approx(4 * 2.3e-3 / 6.0, rel=0.01)
        assert ratios(answer)[Number.THROUGHPUT] == pytest.approx(4 * 2.3e-3 / 6.0, rel=0.01)
        assert ratios(answer)[Number.MEDIAN] == pytest.approx(0.0, abs=1e-5)
        assert answer.span_ns is not None

    def test_turns_in_step_with_the_loop_count(self) -> None:
        """A neighbour's turns at every tenth iteration are not a rhythm of the loop: they add 23 % to the mean."""
        assert ratios(ask(outliers, window(with_late(10, 2.3e-3))))[Number.MEAN] == pytest.approx(0.23, rel=0.01)

    def test_long_delays_of_many_lengths_are_launches_that_waited(self) -> None:
        took_s = even()
        late = np.random.default_rng(2).choice(6000, 60, replace=False)
        took_s[late] += np.random.default_rng(2).exponential(0.04, 60)
        answer = found(ask(outliers, window(took_s)))
        assert answer.facts["kind"] == "host"
        lost = float(took_s.sum()) / float(even().sum()) - 1.0
        mean, rate = (next(each for each in answer.bounds if each.number is of) for of in (Number.MEAN, Number.THROUGHPUT))
        assert mean.ratio == pytest.approx(lost, rel=0.01)
        assert rate.ratio == pytest.approx(lost / (1.0 + lost), rel=0.01)
        assert rate.estimate is not None
        assert rate.estimate.value_ratio == -(rate.ratio or 0.0)

    def test_outliers_near_the_limit_have_a_lower_estimate(self) -> None:
        """A faster clock near the power limit may regain a third of a stall's cost and two thirds of a turn's."""
        hot = {"power_w": 690.0}
        for excess_s, kept in ((2.3e-3, 1 / 3), (0.12, 2 / 3)):
            about = window(with_late(1500, excess_s))
            capped = replace(evidence(length_s=about.window.length_s, signals=hot), timings=about.timings)
            mean = next(each for each in found(ask(outliers, capped)).bounds if each.number is Number.MEAN)
            assert mean.estimate is not None
            assert mean.estimate.low_ratio == pytest.approx(kept * mean.estimate.high_ratio)

    def test_outliers_name_the_pause_that_covers_them(self) -> None:
        """A collection of 80 ms inside an iteration that is 100 ms late is its cause; one of 20 ms is not."""
        took_s = even()
        took_s[3000] += 0.1
        about = window(took_s)
        assert about.timings is not None
        begin_ns = int(about.timings.at_ns[3000])
        for length_ns, cause in ((80_000_000, "collector"), (20_000_000, "unknown")):
            pauses = (Pause(begin_ns + 1_000_000, begin_ns + 1_000_000 + length_ns, "collector"),)
            answer = found(ask(outliers, replace(about, pauses=pauses)))
            assert answer.facts["cause"] == cause
            assert outliers.says.format(**answer.facts).endswith(": collector") is (cause == "collector")

    def test_short_outliers_with_waiting_threads_are_host_delays(self) -> None:
        """Delays below 1 ms are scattered; with threads that waited for a CPU core, they are host delays."""
        took_s = even()
        late = np.random.default_rng(2).choice(6000, 600, replace=False)
        took_s[late] += np.random.default_rng(2).uniform(0.2e-3, 0.9e-3, 600)
        assert found(ask(outliers, window(took_s))).facts["kind"] == "scattered"
        about = replace(window(took_s), host=Host(span_s=6.0, run_wait_s=2.0))
        assert found(ask(outliers, about)).facts["kind"] == "host"

    def test_outliers_at_every_tenth_iteration_are_clear(self) -> None:
        """A delay at every tenth iteration belongs to the loop: the rule is clear, with the cost in its facts."""
        answer = ask(outliers, window(with_late(10, 0.4e-3)))
        assert isinstance(answer, Clear)
        assert answer.facts["rhythm_cost_ratio"] == pytest.approx(0.04, rel=0.02)

    def test_stall_in_a_rhythm_counts_without_the_rhythm(self) -> None:
        took_s = with_late(10, 0.4e-3)
        took_s[3004] += 0.02
        assert ratios(ask(outliers, window(took_s)))[Number.MEAN] == pytest.approx(0.02 / 6.24, rel=0.02)

    def test_jitter_of_short_launches_is_not_counted(self) -> None:
        """In times of 20 µs, delays of 30 µs are jitter of the launches; a stall of 50 ms counts."""
        took_s = even(60000, took_s=20e-6)
        late = np.random.default_rng(3).choice(60000, 2000, replace=False)
        took_s[late] += 30e-6
        assert isinstance(ask(outliers, window(took_s)), Clear)
        took_s = even(60000, took_s=20e-6)
        took_s[30000] += 0.05
        stalled = evidence(length_s=2.0, timings=timed(took_s))
        assert ratios(ask(outliers, stalled))[Number.MEAN] == pytest.approx(0.05 / 1.2, rel=0.01)

    def test_groups_at_even_distances_have_a_rhythm(self) -> None:
        took_s = even()
        for begin in range(200, 6000, 500):
            took_s[begin : begin + 15] *= np.random.default_rng(begin).uniform(1.5, 4.0, 15)
        answer = found(ask(outliers, window(took_s)))
        assert answer.facts["kind"] == "periodic"
        assert answer.bounds

    def test_outliers_are_judged_at_one_clock(self) -> None:
        """Times lengthened by drops of the clock are late as raw times, but not at one clock."""
        clock = np.where(np.arange(6000) % 600 < 30, 1500.0, 1800.0) * (1.0 + 0.01 * np.sin(np.arange(6000) / 30.0))
        took_s = even() * 1800.0 / clock
        raw = found(ask(outliers, window(took_s)))
        assert (ratios(raw)[Number.MEAN] or 0.0) > 0.005
        stamped = replace(window(took_s), timings=timed(took_s, clock_mhz=clock))
        assert isinstance(ask(outliers, stamped), Clear)

    def test_swinging_clock_makes_no_outliers(self) -> None:
        wave = 1.0 + 0.03 * np.sin(2 * np.pi * np.arange(20000) / 5000.0)
        assert isinstance(ask(outliers, window(even(20000, took_s=0.2e-3) * wave)), Clear)

    def test_cold_first_calls_are_not_outliers(self) -> None:
        took_s = even()
        took_s[:4] = 0.3, 0.05, 0.02, 0.004
        assert isinstance(ask(outliers, window(took_s)), Clear)

    def test_outliers_bound_is_their_cost(self) -> None:
        late = np.random.default_rng(5).choice(6000, 120, replace=False)
        took_s = even()
        took_s[late] += np.random.default_rng(6).uniform(0.6e-3, 0.9e-3, 120)
        answer = found(ask(outliers, window(took_s)))
        assert outliers.says.format(**answer.facts) == "120 of 6000 iterations are outliers and add 1.52%, scattered"
        assert ratios(answer)[Number.MEAN] == pytest.approx(0.0152, abs=1e-4)

    def test_evenly_spread_jitter_is_clear(self) -> None:
        """Delays of 0.1 ms spread evenly over the window are clear; the same delays in a tenth of the window count."""
        took_s = even()
        took_s[np.random.default_rng(7).choice(6000, 120, replace=False)] += 0.1e-3
        answer = ask(outliers, window(took_s))
        assert isinstance(answer, Clear)
        assert answer.facts["rhythm_cost_ratio"] == pytest.approx(0.002, rel=0.05)
        took_s = even()
        took_s[np.random.default_rng(7).choice(600, 120, replace=False) + 2400] += 0.1e-3
        assert ratios(ask(outliers, window(took_s)))[Number.MEAN] == pytest.approx(0.002, rel=0.05)

    def test_even_jitter_of_waiting_threads_counts(self) -> None:
        took_s = even()
        took_s[np.random.default_rng(7).choice(6000, 120, replace=False)] += 0.1e-3
        about = replace(window(took_s), host=Host(span_s=6.0, run_wait_s=2.0))
        assert ratios(ask(outliers, about))[Number.MEAN] == pytest.approx(0.002, rel=0.05)

    def test_runs_of_slow_capped_calls_are_the_swing(self) -> None:
        """Runs of 30 raw capped calls that are 8 % longer are the swing; uncapped, or 60 % longer, they are late."""
        places = np.concatenate([np.arange(30) + begin for begin in range(500, 6000, 1100)])
        swung, slow = even(), even()
        swung[places] *= 1.08
        slow[places] *= 1.6
        assert isinstance(ask(outliers, evidence(length_s=6.5, signals=CAPPED, timings=timed(swung))), Clear)
        assert found(ask(outliers, evidence(length_s=6.5, signals=CAPPED, timings=timed(slow)))).bounds
        assert found(ask(outliers, evidence(length_s=6.5, timings=timed(swung)))).bounds

    def test_single_late_calls_of_a_slow_stretch_are_the_swing(self) -> None:
        """Every third call of a stretch is 8 % late and those between 5 %: the swing.  Alone, such calls are late."""
        places = np.arange(500, 6000, 1100)[:, np.newaxis] + np.arange(0, 30, 3)
        swung, alone = even(), even()
        swung[(places[:, :, np.newaxis] + np.arange(3)).ravel()] *= 1.05
        for each in (swung, alone):
            each[places.ravel()] = 1.08 * even()[places.ravel()]
        lying = [beyond_swing(outlying(timed(each)), 0.12) for each in (swung, alone)]
        assert [len(each.indices) for each in lying] == [0, places.size]

    def test_facts_hold_mean_and_trimmed_mean(self) -> None:
        facts = found(ask(outliers, window(with_late(700, 2.3e-3)))).facts
        assert float(facts["mean_s"] or 0) > float(facts["trimmed_mean_s"] or 0)

    def test_five_iterations_have_no_neighbours(self) -> None:
        assert isinstance(ask(outliers, window(even(5))), Unobserved)


class TestBimodal:
    TURNS = np.arange(6000) // 100 % 2

    def two(self, ratio: float = 1.1) -> Values:
        return np.asarray(even() * np.where(self.TURNS, ratio, 1.0), np.float64)

    def test_two_speeds_in_turns_are_bounded_and_named(self) -> None:
        """Two speeds 10 % apart, with half of the times each, give bounds of 5 % for median, mean and throughput."""
        answer = found(ask(bimodal, window(self.two())))
        half = pytest.approx(0.05, abs=0.005)
        assert ratios(answer) == {Number.MEDIAN: half, Number.MEAN: half, Number.THROUGHPUT: half}
        assert answer.facts["separation_ratio"] == pytest.approx(0.1, abs=0.01)
        assert answer.facts["fast_ratio"] == pytest.approx(0.5, abs=0.02)

    def test_two_speeds_by_design_bound_the_median_alone(self) -> None:
        """Two speeds bound only the median under ``varies``, which claims the mean."""
        about = window(self.two())
        answer = found(ask(bimodal, replace(about, declared={**about.declared, "varies": True})))
        assert set(ratios(answer)) == {Number.MEDIAN}

    @pytest.mark.parametrize("share_ratio", [0.12, 0.25])
    def test_small_group_shifts_the_median_within_the_larger(self, share_ratio: float) -> None:
        took_s = even() * np.where(np.random.default_rng(4).random(6000) < share_ratio, 1.1, 1.0)
        bound = ratios(ask(bimodal, window(took_s)))[Number.MEDIAN]
        assert bound is not None
        assert 0.0 < bound < 0.002  # one standard deviation of the larger group

    @pytest.mark.parametrize("nth", [2, 10])
    def test_every_nth_slow_iteration_has_no_bounds(self, nth: int) -> None:
        answer = found(ask(bimodal, window(even() * np.where(np.arange(6000) % nth, 1.0, 1.2))))
        assert answer.bounds == ()
        assert "iteration" in str(answer.facts["cause"])

    @pytest.mark.parametrize("ratio", [1.0, 1.015])
    def test_modes_within_two_per_cent_are_clear(self, ratio: float) -> None:
        assert isinstance(ask(bimodal, window(self.two(ratio))), Clear)

    def test_single_switch_is_not_two_modes(self) -> None:
        assert isinstance(ask(bimodal, window(even() * np.where(np.arange(6000) < 3000, 1.0, 1.1))), Clear)

    def test_swinging_clock_is_not_two_modes(self) -> None:
        wave = 1.0 + 0.03 * np.sin(2 * np.pi * np.arange(20000) / 500.0)
        assert isinstance(ask(bimodal, window(even(20000) * wave)), Clear)

    def test_long_tail_is_not_two_modes(self) -> None:
        took_s = 1e-3 * (1.0 + np.random.default_rng(1).exponential(0.5, 6000))
        assert isinstance(ask(bimodal, window(took_s)), Clear)

    def test_quantised_times_are_not_many_modes(self) -> None:
        took_s = np.round(even(6000, took_s=10e-6, noise_ratio=0.05) / 0.5e-6) * 0.5e-6
        assert isinstance(ask(bimodal, window(took_s)), Clear)

    @pytest.mark.parametrize(("ratio", "slow_mhz"), [(1.04, 1300.0), (1.3, 1040.0)])
    def test_speeds_caused_by_the_clock_are_clear_at_one_clock(self, ratio: float, slow_mhz: float) -> None:
        """Groups of times that the stamped clock causes vanish at one clock."""
        clock = np.where(self.TURNS, slow_mhz, slow_mhz * ratio) * (1.0 + 0.003 * np.sin(np.arange(6000) / 40.0))
        took_s = even() * clock.max() / clock
        assert isinstance(ask(bimodal, replace(window(took_s), timings=timed(took_s, clock_mhz=clock))), Clear)

    def test_two_speeds_at_the_same_clock_name_that_cause(self) -> None:
        about = replace(window(self.two(1.04)), timings=timed(self.two(1.04), clock_mhz=np.full(6000, 1400.0)))
        answer = found(ask(bimodal, about))
        assert "same true clock" in str(answer.facts["cause"])
        half = pytest.approx(0.02, abs=0.003)
        assert ratios(answer) == {Number.MEDIAN: half, Number.MEDIAN_AT_CLOCK: half}  # too close for bounds of the mean
        assert {bound.group for bound in answer.bounds} == {Group.TIMES}

    def test_two_close_capped_speeds_have_no_bounds(self) -> None:
        timings = timed(self.two(1.035))
        assert found(ask(bimodal, evidence(length_s=6.2, signals=CAPPED, timings=timings))).bounds == ()
        assert found(ask(bimodal, evidence(length_s=6.2, timings=timings))).bounds
