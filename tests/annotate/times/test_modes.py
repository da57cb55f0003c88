"""Detection of two modes, and false alarms on single modes of several shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from annotate.evidence import Values
from annotate.times.modes import Modes, two_modes
from tests.examples import share_of

UNIMODAL = {
    "normal": lambda rng, n: 1e-3 * (1.0 + 0.03 * rng.standard_normal(n)),
    "uniform": lambda rng, n: 1e-3 * rng.uniform(1.0, 1.1, n),
    "exponential": lambda rng, n: 1e-3 * (1.0 + rng.exponential(0.2, n)),
    "heavy-tailed": lambda rng, n: 1e-3 * (1.0 + 0.01 * np.abs(rng.standard_t(2, n))),
    "quantised": lambda rng, n: np.round(20e-6 * (1.0 + 0.05 * rng.standard_normal(n)) / 0.5e-6) * 0.5e-6,
}


def sure(modes: Modes | None) -> bool:
    return modes is not None and modes.p < 0.01 and modes.depth_ratio < 0.25


@pytest.mark.parametrize("kind", UNIMODAL)
def test_two_modes_have_few_false_alarms(kind: str) -> None:
    """At most one in a hundred series with one mode is reported as two."""
    rng = np.random.default_rng(11)
    calls = [sure(two_modes(UNIMODAL[kind](rng, n))) for n in (30, 100, 400, 3000) for _ in range(50)]
    assert sum(calls) <= 2


@settings(max_examples=share_of(60))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(400, 3000),
    separation=st.floats(0.04, 5.0),
    minor=st.floats(0.12, 0.5),
)
def test_two_clear_modes_are_found(seed: int, count: int, separation: float, minor: float) -> None:
    rng = np.random.default_rng(seed)
    slow = rng.random(count) < minor
    took_s: Values = np.where(slow, 1.0 + separation, 1.0) * 1e-3 * (1.0 + 0.003 * rng.standard_normal(count))
    modes = two_modes(took_s)
    assert modes is not None
    assert sure(modes)
    assert modes.separation_ratio == pytest.approx(separation, rel=0.15)
    assert modes.slow_ratio == pytest.approx(slow.mean(), abs=0.01)


@settings(max_examples=share_of(60))
@given(st.lists(st.floats(1e-7, 10.0), min_size=0, max_size=60))
@example([1, 2, 2, 3, 7, 7, 8, 1.375, 2.5, 3.0625, 3.5625, 3.3125, 4.625, 6.5, 0.5])  # two valleys alike, a peak between
def test_two_modes_accept_any_durations(values: list[float]) -> None:
    modes = two_modes(np.array(values, np.float64))
    if modes is not None:
        assert modes.fast_s <= modes.split_s <= modes.slow_s
        assert 0.0 <= modes.p <= 1.0
        assert 0.0 <= modes.depth_ratio <= 1.0


def test_two_modes_of_one_switch_are_unsure() -> None:
    rng = np.random.default_rng(1)
    levels = np.where(np.arange(3000) < 1200, 1.0, 1.1)
    took_s = levels * 1e-3 * (1.0 + 0.003 * rng.standard_normal(3000))
    modes = two_modes(took_s)
    assert modes is not None
    assert modes.depth_ratio < 0.05
    assert not sure(modes)


def test_two_modes_of_a_wave_are_shallow() -> None:
    """A wave leaves more than 40 % of the density between its turning points."""
    rng = np.random.default_rng(1)
    took_s = (1.0 + 0.03 * np.sin(np.arange(6000) / 10.0)) * 1e-3 * (1.0 + 0.003 * rng.standard_normal(6000))
    modes = two_modes(took_s)
    assert modes is not None
    assert modes.depth_ratio > 0.4
