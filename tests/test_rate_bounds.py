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
def test_clopper_pearson_covers_every_rate(trials: int, rate: float) -> None:
    """The bounds contain the true rate with a probability of at least 95 %."""
    held = 0.0
    for hits in range(trials + 1):
        low, high = clopper_pearson(hits, trials)
        if low <= rate <= high:
            held += math.comb(trials, hits) * rate**hits * (1.0 - rate) ** (trials - hits)
    assert held >= 0.95 - 1e-9


def test_clopper_pearson_for_no_hits_in_300_trials() -> None:
    """Without a hit in 300 trials the upper bound is 1.22 %."""
    low, high = clopper_pearson(0, 300)
    assert low == 0.0
    assert high == pytest.approx(0.0122, abs=1e-4)


def test_clopper_pearson_without_trials_is_unbounded() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)
