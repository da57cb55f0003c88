"""What the judge's statistics promise: invariances, calibration, and the degenerate series a GPU produces."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Column, Values
from annotate.stats.robust import (
    autocorrelations,
    block_means,
    centre,
    effective_count,
    spread,
    step,
    trend,
    without_cycle,
)
from tests.examples import share_of

SERIES = st.lists(st.integers(0, 40), min_size=8, max_size=40).map(lambda steps: 1200.0 + 15.0 * np.array(steps, np.float64))
few = settings(max_examples=share_of(40))


def correlated(count: int, phi: float, *, seed: int) -> Values:
    noise = np.random.default_rng(seed).normal(size=count)
    out = np.zeros(count)
    for i in range(1, count):
        out[i] = phi * out[i - 1] + noise[i]
    return out


def index(values: Values) -> npt.NDArray[np.float64]:
    return np.arange(len(values), dtype=np.float64)


class TestCentreAndSpread:
    def test_the_spread_of_normal_noise_is_its_standard_deviation(self) -> None:
        assert spread(np.random.default_rng(1).normal(100.0, 3.0, 20_000)) == pytest.approx(3.0, rel=0.03)

    def test_one_outlier_moves_neither(self) -> None:
        values = np.array([10.0, 11.0, 12.0, 13.0, 14.0])
        wild = np.array([10.0, 11.0, 12.0, 13.0, 1e9])
        assert centre(wild) == centre(values)
        assert spread(wild) == spread(values)

    def test_quantised_values_have_the_spread_of_the_floor(self) -> None:
        assert spread(np.array([1980.0] * 9 + [1965.0]), floor=15.0) == 15.0

    @given(SERIES, st.floats(0.5, 3.0), st.floats(-1e3, 1e3))
    @few
    def test_the_spread_scales_and_ignores_the_level(self, values: Values, scale: float, level: float) -> None:
        assert spread(values * scale + level) == pytest.approx(spread(values) * scale, abs=1e-6)

    def test_no_values_are_an_error(self) -> None:
        for function in (centre, spread, effective_count):
            with pytest.raises(ValueError, match="at least one value"):
                function(np.empty(0))


class TestBlocks:
    @staticmethod
    def column(*values: float) -> Column:
        return Column(10 * np.arange(len(values), dtype=np.int64), np.array(values, np.float64))

    def test_each_block_stands_at_its_middle_and_a_rest_is_left_out(self) -> None:
        blocks = block_means(self.column(1, 2, 9, 4, 5, 6, 7), 30)
        assert blocks.at_ns.tolist() == [15, 45]
        assert blocks.values.tolist() == [4.0, 5.0]

    def test_a_block_mostly_unobserved_is_left_out(self) -> None:
        nan = float("nan")
        blocks = block_means(self.column(1, nan, nan, 4, 5, nan), 30)
        assert blocks.at_ns.tolist() == [45]
        assert blocks.values.tolist() == [4.5]

    def test_too_few_values_make_no_block(self) -> None:
        assert len(block_means(self.column(1), 10)) == 0
        assert len(block_means(self.column(1, 2), 50)) == 0

    def test_a_width_of_nothing_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="positive block width"):
            block_means(self.column(1, 2), 0)

    @given(SERIES)
    @few
    def test_blocks_of_one_value_are_the_series(self, values: Values) -> None:
        assert block_means(self.column(*values), 10).values.tolist() == values.tolist()


class TestTrend:
    def test_a_straight_line_is_certain(self) -> None:
        found = trend(index(np.arange(10.0)), 5.0 - 2.0 * np.arange(10.0))
        assert found.slope == pytest.approx(-2.0)
        assert found.least(2.5) == pytest.approx(2.0)
        assert found.p < 0.001

    def test_a_constant_has_no_trend(self) -> None:
        found = trend(index(np.ones(12)), np.full(12, 1980.0))
        assert (found.slope, found.error, found.p) == (0.0, 0.0, 1.0)

    def test_without_correlation_the_p_value_is_mann_and_kendalls(self) -> None:
        # S = 8 of 10 pairs in 5 values without ties: Var = 5*4*15/18, z = 7 / sqrt(16.667) = 1.7146.
        found = trend(index(np.ones(5)), np.array([1.0, 2.0, 4.0, 3.0, 5.0]))
        assert found.p == pytest.approx(0.0864, abs=0.0005)

    def test_ties_lower_the_variance(self) -> None:
        # Values 1 1 2 2: S = 4, Var = (4*3*13 - 2*(2*1*9))/18 = 6.667, z = 3 / 2.582.
        found = trend(index(np.ones(4)), np.array([1.0, 1.0, 2.0, 2.0]))
        assert found.p == pytest.approx(0.2453, abs=0.0005)

    @given(SERIES)
    @few
    def test_reversing_time_turns_the_slope_and_keeps_the_p_value(self, values: Values) -> None:
        forward, backward = trend(index(values), values), trend(index(values), values[::-1])
        assert backward.slope == pytest.approx(-forward.slope)
        assert backward.error == pytest.approx(forward.error)
        assert backward.p == pytest.approx(forward.p)

    @given(SERIES, st.sampled_from([0.5, 2.0, 4.0]))
    @few
    def test_units_change_the_slope_only(self, values: Values, scale: float) -> None:
        plain, scaled = trend(index(values), values), trend(index(values), scale * values)
        assert scaled.slope == pytest.approx(scale * plain.slope)
        assert scaled.error == pytest.approx(scale * plain.error)
        assert scaled.p == pytest.approx(plain.p)

    def test_the_standard_error_is_least_squares_or_wider(self) -> None:
        from scipy.stats import linregress

        values = 3.0 * np.arange(200.0) + np.random.default_rng(2).normal(0.0, 5.0, 200)
        ordinary = float(linregress(index(values), values).stderr)
        # Chance correlations at single lags widen it a little.
        assert 0.99 * ordinary < trend(index(values), values).error < 1.25 * ordinary

    @given(SERIES, st.floats(0.0, 5.0))
    @few
    def test_trend_bounds_of_p_and_least(self, values: Values, errors: float) -> None:
        """P is a probability and what is sure no more than the slope."""
        found = trend(index(values), values)
        assert 0.0 <= found.p <= 1.0
        assert 0.0 <= found.least(errors) <= abs(found.slope)

    def test_a_staircase_of_few_steps_surely_rises(self) -> None:
        found = trend(index(np.ones(9)), np.repeat([1500.0, 1515.0, 1530.0], 3))
        assert found.least(2.5) > 2.0

    def test_trend_false_alarms_of_independent_noise(self) -> None:
        """Independent noise is called a trend about as often as asked."""
        noise = np.random.default_rng(7).normal(size=(300, 20))
        assert sum(trend(index(row), row).p < 0.05 for row in noise) <= 30

    def test_trend_false_alarms_of_correlated_noise(self) -> None:
        """Correlated noise is called a trend far less often than without the correction."""
        walks = [correlated(60, 0.8, seed=seed) for seed in range(150)]
        corrected = sum(trend(index(walk), walk).p < 0.05 for walk in walks)
        from scipy.stats import kendalltau

        plain = sum(kendalltau(index(walk), walk).pvalue < 0.05 for walk in walks)
        assert corrected < 0.6 * plain

    @pytest.mark.parametrize("count", [0, 3])
    def test_too_few_points_are_an_error(self, count: int) -> None:
        with pytest.raises(ValueError, match="at least four"):
            trend(np.arange(float(count)), np.ones(count))

    def test_times_and_values_must_match(self) -> None:
        with pytest.raises(ValueError, match="as many times"):
            trend(np.arange(4.0), np.ones(5))


class TestEffectiveCount:
    def test_independent_values_count_nearly_fully(self) -> None:
        assert effective_count(np.random.default_rng(3).normal(size=2000)) > 1500

    def test_correlated_values_count_as_theory_says(self) -> None:
        # The mean of an AR(1) series carries (1 - phi) / (1 + phi) of its values' information.
        assert effective_count(correlated(20_000, 0.9, seed=4)) == pytest.approx(20_000 / 19, rel=0.3)

    def test_alternating_values_never_count_more_than_there_are(self) -> None:
        assert effective_count(np.tile([1.0, -1.0], 50)) == 100

    @pytest.mark.parametrize("count", [1, 2, 3, 50])
    def test_a_constant_counts_fully(self, count: int) -> None:
        assert effective_count(np.full(count, 0.1)) == count

    @given(SERIES)
    @few
    def test_it_lies_between_one_and_the_number_of_values(self, values: Values) -> None:
        assert 1.0 <= effective_count(values) <= len(values)

    @given(SERIES)
    @few
    def test_repeating_every_value_adds_no_information(self, values: Values) -> None:
        values = values + np.linspace(0.0, 1.0, len(values))  # a constant counts fully however long it is
        assert effective_count(np.repeat(values, 4)) <= 2 * len(values)

    @given(SERIES)
    @few
    def test_autocorrelations_begin_at_one_and_stay_within_it(self, values: Values) -> None:
        found = autocorrelations(values)
        assert found[0] == pytest.approx(1.0)
        assert (np.abs(found) <= 1.0 + 1e-9).all()


class TestStep:
    @given(st.integers(2, 18), st.sampled_from([-90.0, -45.0, 45.0, 90.0]))
    @few
    def test_a_clean_step_is_found_where_it_is(self, at: int, size: float) -> None:
        values = np.concatenate([np.full(at, 1500.0), np.full(20 - at, 1500.0 + size)])
        found = step(values)
        assert found is not None
        assert (found.index, found.size) == (at, size)
        assert found.explained_ratio == pytest.approx(1.0)
        assert found.significance == float("inf")

    @given(st.lists(st.integers(90, 132), min_size=4, max_size=40))
    @few
    def test_the_place_is_the_one_of_least_absolute_deviations(self, steps: list[int]) -> None:
        values = 15.0 * np.array(steps)
        found = step(values)
        assert found is not None

        def cost(cut: int) -> float:
            return float(sum(np.abs(side - np.median(side)).sum() for side in (values[:cut], values[cut:])))

        assert cost(found.index) == pytest.approx(min(cost(cut) for cut in range(2, len(values) - 1)), abs=1e-6)

    def test_noise_about_the_levels_bounds_the_significance(self) -> None:
        noise = np.random.default_rng(5).normal(0.0, 10.0, 60)
        found = step(noise + np.repeat([1980.0, 1560.0], 30))
        assert found is not None
        assert found.index == 30
        assert 20 < found.significance < 100

    def test_a_straight_line_is_half_explained_by_a_step(self) -> None:
        found = step(np.arange(200.0))
        assert found is not None
        assert found.explained_ratio == pytest.approx(0.5, abs=0.01)
        assert found.significance < 5

    def test_a_constant_has_no_step(self) -> None:
        found = step(np.full(10, 1980.0))
        assert found is not None
        assert (found.size, found.significance, found.explained_ratio) == (0.0, 0.0, 0.0)

    def test_one_wild_value_is_no_level(self) -> None:
        values = np.full(20, 1500.0)
        values[7] = 900.0
        found = step(values)
        assert found is not None
        assert found.size == 0.0

    def test_too_few_values_have_none(self) -> None:
        assert step(np.ones(3)) is None
        with pytest.raises(ValueError, match="each side"):
            step(np.ones(3), side=0)


class TestWithoutCycle:
    AT = np.arange(0.0, 4.0, 0.05)
    PERIODS = np.linspace(0.8, 1.25, 10)

    def test_a_wave_goes_and_a_line_stays(self) -> None:
        line = 1500.0 - 12.0 * self.AT
        left = without_cycle(self.AT, line + 45.0 * np.sin(2 * np.pi * self.AT / 1.05 + 0.7), self.PERIODS)
        assert np.abs(left - line).max() < 1.0

    @given(st.floats(-50.0, 50.0), st.floats(0.0, 6.0))
    @few
    def test_the_slope_survives_a_wave_of_any_phase(self, slope: float, phase: float) -> None:
        values = 1500.0 + slope * self.AT + 45.0 * np.sin(2 * np.pi * self.AT + phase)
        left = without_cycle(self.AT, values, self.PERIODS)
        assert np.polyfit(self.AT, left, 1)[0] == pytest.approx(slope, abs=1.0)

    def test_too_few_values_stay_as_they_are(self) -> None:
        values = np.array([1.0, 5.0, 2.0])
        assert without_cycle(np.arange(3.0), values, self.PERIODS) is values
