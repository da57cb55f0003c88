"""Variances and repeatability of simulated series: white, correlated and cyclic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Times, Values
from annotate.stats.long_run import cycle_means, cycle_variance, long_run_variance, mean_within, median_within
from tests.examples import share_of

SECOND_NS = 1_000_000_000
few = settings(max_examples=share_of(40))
series = st.lists(st.floats(0.5, 2.0), min_size=6, max_size=200).map(np.array)


def correlated(count: int, phi: float, seed: int) -> Values:
    rng = np.random.default_rng(seed)
    shocks = rng.normal(size=count)
    out = np.empty(count)
    out[0] = shocks[0] / np.sqrt(1.0 - phi * phi)
    for i in range(1, count):
        out[i] = phi * out[i - 1] + shocks[i]
    return out


def at(count: int, seconds: float) -> Times:
    return (np.arange(count) * seconds * 1e9 / count).astype(np.int64)


@few
@given(values=series, cycle_count=st.integers(1, 30), factor=st.floats(0.1, 10.0), offset=st.floats(-5.0, 5.0))
def test_cycle_variance_scales_and_is_never_negative(values: Values, cycle_count: int, factor: float, offset: float) -> None:
    plain = cycle_variance(values, cycle_count)
    assert plain >= 0.0
    assert cycle_variance(factor * values + offset, cycle_count) == pytest.approx(factor**2 * plain, abs=1e-12)


@pytest.mark.parametrize("phase", [0.0, 1.0, 2.0])
def test_cycle_variance_of_a_sine_is_of_half_a_cycle(phase: float) -> None:
    """The variance is five blocks times the mean square of half-cycle means, at any phase."""
    sine = np.sin(2.0 * np.pi * np.arange(60) / 10 + phase)
    assert cycle_variance(sine, 10) == pytest.approx(1.0, abs=0.35)


def test_cycle_variance_of_wide_blocks_is_not_near_zero() -> None:
    """With two blocks per cycle, the lowest tenth of neighbouring pairs alone would be near zero."""
    noise = np.random.default_rng(1).normal(size=60)
    assert cycle_variance(noise, 2) > 0.15


def test_cycle_variance_ignores_changes_of_level() -> None:
    """Changes of level hardly affect the variance within a cycle."""
    noise = np.random.default_rng(1).normal(0.0, 0.01, 120)
    square = np.arange(120) // 10 % 2
    assert cycle_variance(noise + square, 10) < 0.35 * float(np.var(square)) * 10
    assert cycle_variance(noise + (np.arange(120) >= 60), 10) == pytest.approx(cycle_variance(noise, 10), rel=0.5)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_long_run_variance_of_correlated_noise(phi: float) -> None:
    """The average over many series is near 1 / (1 - phi)², the long-run variance of the process."""
    found = np.mean([long_run_variance(correlated(2000, phi, seed))[0] for seed in range(30)])
    assert found == pytest.approx(1.0 / (1.0 - phi) ** 2, rel=0.25)


def test_long_run_variance_of_many_values_uses_blocks() -> None:
    """The long-run variance of 30 000 values, averaged in blocks, is near that of the process."""
    values = correlated(30_000, 0.7, 3)
    assert long_run_variance(values)[0] == pytest.approx(1.0 / 0.09, rel=0.3)


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_mean_within_covers_the_true_mean(phi: float) -> None:
    """The interval of the mean holds the true mean in at least 88 % of the series."""
    held = 0
    for seed in range(200):
        values = 100.0 + correlated(400, phi, seed)
        within = mean_within(at(400, 4.0), values, cycle_ns=None)
        assert within is not None
        held += abs(float(values.mean()) / 100.0 - 1.0) <= within.half_ratio
    assert held / 200 >= 0.88


@pytest.mark.parametrize("cycles", [2, 3, 6])
def test_mean_over_whole_cycles_cancels_the_swing(cycles: int) -> None:
    """A swing of 2 % with a period of 1 s cancels in the means of whole seconds."""
    times = at(1000 * cycles, float(cycles))
    values = 1.0 + 0.02 * np.sin(2.0 * np.pi * times / 1e9) + np.random.default_rng(cycles).normal(0.0, 1e-4, len(times))
    within = mean_within(times, values, cycle_ns=SECOND_NS)
    assert within is not None
    assert within.by_cycles
    assert within.blocks_count == cycles
    assert within.half_ratio < 5e-4


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.9])
def test_fewer_than_two_cycles_have_no_repeatability(seconds: float) -> None:
    assert mean_within(at(100, seconds), np.ones(100), cycle_ns=SECOND_NS) is None
    assert median_within(at(100, seconds), np.ones(100), cycle_ns=SECOND_NS) is None


@pytest.mark.parametrize("grid", [0.0, 0.01])
def test_median_within_covers_the_true_median(grid: float) -> None:
    """The interval holds the true median in at least 88 % of the series, even if a timer's grid makes values equal."""
    held = 0
    for seed in range(200):
        values = np.random.default_rng(seed).lognormal(0.0, 0.05, 300)
        values = np.round(values / grid) * grid if grid else values
        within = median_within(at(300, 3.0), values, cycle_ns=None)
        assert within is not None
        held += abs(float(np.median(values)) - 1.0) <= within.half_ratio + 1e-9
    assert held / 200 >= 0.88


@few
@given(values=series, factor=st.floats(0.1, 10.0))
def test_repeatability_is_a_ratio(values: Values, factor: float) -> None:
    """Another unit does not change the repeatability."""
    times = at(len(values), 4.0)
    for found in (mean_within, median_within):
        plain, scaled = found(times, values, cycle_ns=None), found(times, factor * values, cycle_ns=None)
        assert (plain is None) == (scaled is None)
        if plain is not None and scaled is not None:
            assert scaled.half_ratio == pytest.approx(plain.half_ratio, abs=1e-6)


@few
@given(count=st.integers(0, 50), cycle_ns=st.integers(1, 10**6))
def test_cycle_means_lie_within_the_values(count: int, cycle_ns: int) -> None:
    values = np.random.default_rng(count).uniform(1.0, 2.0, count)
    means = cycle_means(at(count, 1e-3), values, cycle_ns)  # a cycle of 1 ns makes a million
    assert ((means >= 1.0) & (means <= 2.0)).all()
