"""Tests of the exact bounds of a counted rate."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import share_of
from tests.rate_bounds import clopper_pearson


@given(st.integers(1, 30), st.floats(0.01, 0.99))
@settings(max_examples=share_of(25))
def test_bounds_cover_every_rate(trials: int, rate: float) -> None:
    held = 0.0
    for hits in range(trials + 1):
        low, high = clopper_pearson(hits, trials)
        if low <= rate <= high:
            held += math.comb(trials, hits) * rate**hits * (1.0 - rate) ** (trials - hits)
    assert held >= 0.95 - 1e-9


def test_bounds_of_three_hundred_clean_windows() -> None:
    low, high = clopper_pearson(0, 300)
    assert low == 0.0
    assert high == pytest.approx(0.0122, abs=1e-4)


def test_bounds_without_trials_say_nothing() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)
