"""Outliers and their pattern, by the places and the lengths of delays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Timings
from annotate.times.outlying import Outlying, outlying, pattern
from tests.annotate.occurrences.numbers import even, timed
from tests.examples import share_of


def lying(took_s: list[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> Outlying:
    return outlying(timed(np.asarray(took_s, np.float64)))


@settings(max_examples=share_of(60))
@given(st.lists(st.floats(1e-7, 10.0), min_size=0, max_size=80), st.booleans())
def test_outlying_accepts_any_durations(took_s: list[float], waited: bool) -> None:
    found = outlying(timed(np.array(took_s, np.float64))) if took_s else outlying(Timings(np.empty(0, np.int64), np.empty(0)))
    assert 0.0 <= found.share_ratio <= 1.0
    assert found.cost_ratio >= 0.0
    assert pattern(found, waited=waited).text


@settings(max_examples=share_of(40))
@given(seed=st.integers(0, 1000), excess_ms=st.floats(0.6, 9.0), count=st.integers(2, 30), kernel_ms=st.floats(0.02, 8.0))
def test_equal_time_slices_are_found_at_any_kernel_length(seed: int, excess_ms: float, count: int, kernel_ms: float) -> None:
    took_s = even(4000, took_s=kernel_ms * 1e-3, seed=seed)
    places = np.random.default_rng(seed).choice(np.arange(1, 1999), count, replace=False) * 2
    took_s[places] += excess_ms * 1e-3
    found = lying(took_s)
    if excess_ms > 0.04 * kernel_ms:
        assert set(places) <= set(found.indices)
        assert pattern(found, waited=False).name == "time-slice"


def test_normal_times_have_almost_no_outliers() -> None:
    assert lying(even(20_000, noise_ratio=0.02)).share_ratio < 1e-4


def test_outlying_after_a_switch_of_level() -> None:
    """After a lasting change of level, at most the half second of the change is outlying."""
    took_s = even(6000)
    took_s[3000:] *= 1.1
    assert lying(took_s).share_ratio < 0.5 / 6.0


def test_delay_of_a_batch_counts_all_its_calls() -> None:
    took_s = even(4000, took_s=20e-6, noise_ratio=0.001)
    took_s[[900, 1700, 3100]] += 2.3e-3 / 100
    begins_ns = timed(took_s * 100).at_ns
    batches = Timings(begins_ns, took_s, calls_count=100)
    assert pattern(outlying(batches), waited=False).name == "time-slice"
    assert pattern(outlying(replace(batches, calls_count=1)), waited=False).name != "time-slice"


def test_outlying_cost_is_the_time_added() -> None:
    """The cost of late iterations is the relative increase of the total time."""
    took_s = np.full(1000, 1e-3)
    took_s[[100, 500]] = 6e-3
    assert lying(took_s).cost_ratio == pytest.approx(0.01)


def test_outlying_uneven_delays_are_not_time_slices() -> None:
    """Delays of many lengths are not time slices, even if the longest are alike."""
    took_s = even(6000)
    late = np.random.default_rng(5).choice(6000, 120, replace=False)
    took_s[late] += np.random.default_rng(6).uniform(0.2e-3, 0.7e-3, 120)
    assert pattern(lying(took_s), waited=False).name == "scattered"
