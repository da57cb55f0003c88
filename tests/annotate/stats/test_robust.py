"""Robust statistics: invariances, calibration, and the degenerate series of a GPU."""

from __future__ import annotations

import numpy as np
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


class TestCentreAndSpread:
    def test_spread_of_normal_noise_is_its_standard_deviation(self) -> None:
        assert spread(np.random.default_rng(1).normal(100.0, 3.0, 20_000)) == pytest.approx(3.0, rel=0.03)

    def test_one_outlier_changes_neither_centre_nor_spread(self) -> None:
        values = np.array([10.0, 11.0, 12.0, 13.0, 14.0])
        wild = np.array([10.0, 11.0, 12.0, 13.0, 1e9])
        assert centre(wild) == centre(values)
        assert spread(wild) == spread(values)

    def test_quantised_values_have_the_spread_of_the_floor(self) -> None:
        assert spread(np.array([1980.0] * 9 + [1965.0]), floor=15.0) == 15.0

    @given(SERIES, st.floats(0.5, 3.0), st.floats(-1e3, 1e3))
    @few
    def test_spread_scales_and_ignores_the_level(self, values: Values, scale: float, level: float) -> None:
        assert spread(values * scale + level) == pytest.approx(spread(values) * scale, abs=1e-6)

    def test_statistics_of_no_values_are_an_error(self) -> None:
        for function in (centre, spread, effective_count):
            with pytest.raises(ValueError, match="at least one value"):
                function(np.empty(0))


class TestBlocks:
    @staticmethod
    def column(*values: float) -> Column:
        return Column(10 * np.arange(len(values), dtype=np.int64), np.array(values, np.float64))

    def test_block_means_are_at_middles_without_a_remainder(self) -> None:
        blocks = block_means(self.column(1, 2, 9, 4, 5, 6, 7), 30)
        assert blocks.at_ns.tolist() == [15, 45]
        assert blocks.values.tolist() == [4.0, 5.0]

    def test_mostly_unobserved_block_is_left_out(self) -> None:
        nan = float("nan")
        blocks = block_means(self.column(1, nan, nan, 4, 5, nan), 30)
        assert blocks.at_ns.tolist() == [45]
        assert blocks.values.tolist() == [4.5]

    def test_too_few_values_make_no_block(self) -> None:
        assert len(block_means(self.column(1), 10)) == 0
        assert len(block_means(self.column(1, 2), 50)) == 0

    def test_block_width_of_zero_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="positive block width"):
            block_means(self.column(1, 2), 0)

    @given(SERIES)
    @few
    def test_blocks_of_one_value_are_the_series(self, values: Values) -> None:
        assert block_means(self.column(*values), 10).values.tolist() == values.tolist()


class TestEffectiveCount:
    def test_independent_values_count_nearly_fully(self) -> None:
        assert effective_count(np.random.default_rng(3).normal(size=2000)) > 1500

    def test_correlated_values_count_as_in_theory(self) -> None:
        # The mean of an AR(1) series carries (1 - phi) / (1 + phi) of its values' information.
        assert effective_count(correlated(20_000, 0.9, seed=4)) == pytest.approx(20_000 / 19, rel=0.3)

    def test_alternating_values_count_at_most_once(self) -> None:
        assert effective_count(np.tile([1.0, -1.0], 50)) == 100

    @pytest.mark.parametrize("count", [1, 2, 3, 50])
    def test_constant_series_counts_fully(self, count: int) -> None:
        assert effective_count(np.full(count, 0.1)) == count

    @given(SERIES)
    @few
    def test_effective_count_is_from_one_to_the_length(self, values: Values) -> None:
        assert 1.0 <= effective_count(values) <= len(values)

    @given(SERIES)
    @few
    def test_fourfold_repeated_values_count_at_most_twice(self, values: Values) -> None:
        values = values + np.linspace(0.0, 1.0, len(values))  # a constant counts fully however long it is
        assert effective_count(np.repeat(values, 4)) <= 2 * len(values)

    @given(SERIES)
    @few
    def test_autocorrelations_are_one_at_lag_zero_and_at_most_one(self, values: Values) -> None:
        found = autocorrelations(values)
        assert found[0] == pytest.approx(1.0)
        assert (np.abs(found) <= 1.0 + 1e-9).all()
