"""Intervals: their coverage for known distributions, and their edges for short series."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Times, Values
from annotate.stats.intervals import (
    Interval,
    batch_interval,
    block_length_count,
    median_interval,
    ratio_interval,
)
from tests.examples import share_of
from tests.wandering import wandering

few = settings(max_examples=share_of(40))
SERIES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60).map(np.array)


def correlated(count: int, phi: float, rng: np.random.Generator) -> Values:
    """Return an AR(1) series of standard deviation 1 about 0."""
    return wandering(np.sqrt(1.0 - phi**2) * rng.normal(size=count + 200), phi)[200:]


def one_after_another(took_s: Values) -> Times:
    return np.asarray(np.cumsum(np.concatenate([[0.0], took_s[:-1]])) * 1e9, np.int64)


def coverage(trials_count: int, interval: Callable[[np.random.Generator], Interval | None], truth: float) -> float:
    """Return the share of known intervals that hold the true value."""
    rng = np.random.default_rng(7)
    found = [known for known in (interval(rng) for _ in range(trials_count)) if known is not None]
    assert len(found) > 0.7 * trials_count
    return sum(not each.excludes(truth) for each in found) / len(found)


class TestBatchInterval:
    def test_batch_interval_covers_independent_times(self) -> None:
        def trial(rng: np.random.Generator) -> Interval | None:
            took_s = 1e-3 * (1.0 + 0.02 * rng.normal(size=2000))
            return batch_interval(one_after_another(took_s), took_s)

        assert coverage(300, trial, 1e-3) > 0.92

    def test_batch_interval_covers_correlated_times(self) -> None:
        """The batch interval covers correlated times, and the plain median interval does not."""

        def times(rng: np.random.Generator) -> Values:
            return 1e-3 * (1.0 + 0.02 * correlated(4000, 0.95, rng))

        def trial(rng: np.random.Generator) -> Interval | None:
            took_s = times(rng)
            return batch_interval(one_after_another(took_s), took_s)

        assert coverage(300, trial, 1e-3) > 0.90
        assert coverage(300, lambda rng: median_interval(times(rng)), 1e-3) < 0.5

    def test_batch_interval_lengthens_correlated_batches(self) -> None:
        # A swing with a period of 0.6 s correlates neighbouring batches of 0.1 s.
        took_s = np.full(2000, 1e-3) * (1.0 + 0.01 * np.sin(2.0 * np.pi * np.arange(2000) / 600.0))
        found = batch_interval(one_after_another(took_s), took_s)
        assert found is None or found.blocks_count < 20

    def test_batch_interval_of_a_short_window_is_unknown(self) -> None:
        took_s = np.full(1000, 1e-4)
        assert batch_interval(one_after_another(took_s), took_s) is None

    def test_batch_interval_of_few_iterations_is_unknown(self) -> None:
        took_s = np.full(60, 1.0)
        assert batch_interval(one_after_another(took_s), took_s) is None

    def test_batch_interval_of_a_steady_drift_is_unknown(self) -> None:
        took_s = np.linspace(1.0e-3, 1.1e-3, 3000)
        assert batch_interval(one_after_another(took_s), took_s) is None

    def test_batch_interval_of_no_iterations_is_unknown(self) -> None:
        assert batch_interval(np.empty(0, np.int64), np.empty(0)) is None

    def test_batch_interval_of_constant_times_has_no_width(self) -> None:
        took_s = np.full(2000, 1e-3)
        found = batch_interval(one_after_another(took_s), took_s)
        assert found is not None
        assert found.half_width_ratio < 1e-9
        assert found.blocks_count == 20

    def test_batch_interval_ignores_a_few_stalls(self) -> None:
        took_s = 1e-3 * (1.0 + 0.01 * np.random.default_rng(3).normal(size=3000))
        stalled_s = took_s.copy()
        stalled_s[::500] = 0.05
        calm, stalled = (batch_interval(one_after_another(each), each) for each in (took_s, stalled_s))
        assert calm is not None
        assert stalled is not None
        assert stalled.centre == pytest.approx(calm.centre, rel=1e-4)


class TestMedianInterval:
    def test_median_interval_covers_a_skewed_distribution(self) -> None:
        assert coverage(800, lambda rng: median_interval(rng.lognormal(size=25)), 1.0) > 0.935

    def test_median_interval_needs_six_values(self) -> None:
        assert not median_interval(np.arange(5.0)).excludes(1e9)
        assert median_interval(np.arange(6.0)).excludes(6.0)

    @given(SERIES)
    @few
    def test_median_interval_holds_its_centre(self, values: Values) -> None:
        found = median_interval(values)
        assert found.low <= found.centre <= found.high

    @given(st.integers(6, 200))
    @few
    def test_median_interval_never_narrows_with_confidence(self, count: int) -> None:
        values = np.random.default_rng(count).normal(size=count)
        wide, narrow = median_interval(values, 0.99), median_interval(values, 0.9)
        assert wide.low <= narrow.low
        assert wide.high >= narrow.high

    def test_median_interval_has_the_published_ranks(self) -> None:
        # Ranks for n = 20 at 95 %: the sixth from each end.
        found = median_interval(np.arange(1.0, 21.0))
        assert (found.low, found.high) == (6.0, 15.0)

    def test_median_interval_of_no_values_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="at least one value"):
            median_interval(np.empty(0))


class TestRatioInterval:
    def test_ratio_interval_covers_independent_pairs(self) -> None:
        assert coverage(500, lambda rng: ratio_interval(0.004 * rng.standard_t(4, 60)), 0.0) > 0.93

    def test_ratio_interval_covers_correlated_pairs(self) -> None:
        """The ratio interval covers correlated pairs, and order statistics do not."""
        assert coverage(150, lambda rng: ratio_interval(0.004 * correlated(400, 0.6, rng)), 0.0) > 0.87
        assert coverage(150, lambda rng: median_interval(0.004 * correlated(400, 0.6, rng)), 0.0) < 0.80

    def test_ratio_interval_is_reproducible(self) -> None:
        pairs = correlated(300, 0.7, np.random.default_rng(5))
        assert ratio_interval(pairs) == ratio_interval(pairs)

    @given(st.integers(0, 1000), st.floats(-0.9, 0.9))
    @few
    def test_correlation_never_narrows_the_ratio_interval(self, seed: int, phi: float) -> None:
        pairs = correlated(120, phi, np.random.default_rng(seed))
        plain, found = median_interval(pairs), ratio_interval(pairs)
        assert found.low <= plain.low
        assert found.high >= plain.high

    def test_blocks_grow_with_correlation(self) -> None:
        rng = np.random.default_rng(11)
        lengths = [
            float(np.mean([block_length_count(correlated(1000, phi, rng)) for _ in range(20)])) for phi in (0.0, 0.5, 0.9)
        ]
        assert lengths[0] < lengths[1] < lengths[2]
