"""Levels of simulated series: steps, telegraph signals, drifts, and the controller's cycle."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Values
from annotate.stats.change_points import change_points, find_levels, hidden_step, swing_variance
from annotate.stats.long_run import cycle_variance
from tests.examples import share_of

CYCLE_COUNT = 10
few = settings(max_examples=share_of(60))
seeds = st.integers(0, 10**6)


def swing(count: int, amplitude: float, phase: float = 0.0) -> Values:
    """Return the swing of a capped H200's clock: nearly a square wave with a period of ten blocks."""
    return np.asarray(amplitude * np.tanh(3.0 * np.sin(2.0 * np.pi * np.arange(count) / CYCLE_COUNT + phase)))


def noise(count: int, sd: float, seed: int) -> Values:
    return np.random.default_rng(seed).normal(0.0, sd, count)


def levels_of(values: Values) -> list[tuple[float, float]]:
    return [(each.mean, each.share_ratio) for each in find_levels(values, cycle_variance(values, CYCLE_COUNT))]


@few
@given(seed=seeds, count=st.integers(4, 11), variance=st.floats(0.01, 0.5))
def test_change_points_are_the_best_of_all(seed: int, count: int, variance: float) -> None:
    """The change points cost as little as the best of all allowed cuts."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=count) + (np.arange(count) >= rng.integers(0, count)) * rng.uniform(0, 6)

    def cost(cuts: tuple[int, ...]) -> float:
        parts = (values[begin:end] for begin, end in pairwise((0, *cuts, count)))
        return sum(float(np.square(part - part.mean()).sum()) for part in parts) + 7.0 * float(np.log(count)) * variance * len(
            cuts
        )

    cuts = [each for size in range(count // 2) for each in combinations(range(2, count - 1), size)]
    allowed = [each for each in cuts if all(end - begin >= 2 for begin, end in pairwise((0, *each, count)))]
    assert cost(change_points(values, variance)) == pytest.approx(min(map(cost, allowed)))


@few
@given(seed=seeds, factor=st.floats(1e-3, 1e3), offset=st.floats(-1e3, 1e3))
def test_levels_scale_with_their_series(seed: int, factor: float, offset: float) -> None:
    """A shift or another unit does not change the places of the levels."""
    values = noise(40, 0.2, seed) + (np.arange(40) >= 15) * 2.0
    plain, moved = find_levels(values, 0.04), find_levels(factor * values + offset, 0.04 * factor**2)
    assert [each.places.tolist() for each in plain] == [each.places.tolist() for each in moved]


@few
@given(seed=seeds, count=st.integers(0, 80))
def test_levels_divide_the_series(seed: int, count: int) -> None:
    """Every value belongs to exactly one level, levels ascend, and one holds at least a fifth."""
    values = np.cumsum(noise(count, 1.0, seed))
    found = find_levels(values, 0.01)
    places = np.concatenate([each.places for each in found]) if found else np.empty(0)
    assert sorted(places.tolist()) == list(range(count))
    assert all(low.mean < high.mean for low, high in pairwise(found))
    assert not count or max(each.share_ratio for each in found) >= 0.2


@pytest.mark.parametrize("count", [0, 1, 2, 3, 30, 600])
def test_constant_series_has_one_level(count: int) -> None:
    """A constant series has no change, even at a variance of zero."""
    found = find_levels(np.full(count, np.log(1980.0)), 0.0)
    assert len(found) == min(count, 1)


@pytest.mark.parametrize("phase", [0.0, 1.0, 2.0, 3.0, 4.5])
@pytest.mark.parametrize("count", [20, 30, 60, 300])
def test_controllers_cycle_is_one_level(count: int, phase: float) -> None:
    """The swing of a capped H200's clock is not a change of level."""
    assert len(levels_of(swing(count, 0.02, phase) + noise(count, 0.004, count))) == 1


@pytest.mark.parametrize("amplitude", [0.0, 0.02])
@pytest.mark.parametrize("seconds", [3, 4, 6, 12, 60])
def test_clock_that_toggles_each_second_has_two_levels(seconds: int, amplitude: float) -> None:
    """1500 and 1980 MHz, alternating every second, are two levels with and without the controller's swing."""
    count = 10 * seconds
    logs = np.log(np.where(np.arange(count) // 10 % 2, 1500.0, 1980.0)) + swing(count, amplitude, 1.0) + noise(count, 2e-3, 1)
    found = levels_of(logs)
    assert len(found) == 2
    assert found[0][0] == pytest.approx(np.log(1500.0), abs=0.01)
    assert found[1][0] == pytest.approx(np.log(1980.0), abs=0.01)


@pytest.mark.parametrize("depth", [0.10, 0.25])
@pytest.mark.parametrize("seconds", [3, 6, 30])
def test_lower_middle_third_is_a_level(depth: float, seconds: int) -> None:
    """A clock that is 10 or 25 % lower in the middle third has two levels, despite the controller's swing."""
    count = 10 * seconds
    third = np.arange(count) * 3 // count == 1
    found = levels_of(np.log1p(-depth * third) + swing(count, 0.02, 0.5) + noise(count, 0.003, 2))
    assert [round(share, 1) for _, share in found] == [0.3, 0.7]
    assert found[1][0] - found[0][0] == pytest.approx(-np.log1p(-depth), abs=0.01)


def test_slow_drift_keeps_a_level_that_holds_a_fifth() -> None:
    """A ramp without noise is cut into many steps; merging leaves a level that holds at least a fifth."""
    found = find_levels(np.linspace(0.0, 1.0, 200), 1e-6)
    assert max(each.share_ratio for each in found) >= 0.2


@few
@given(seed=seeds, share=st.floats(0.2, 0.8))
def test_hidden_step_separates_found_and_missed_steps(seed: int, share: float) -> None:
    """A step of 1.5 times the hidden one is found, and half of the hidden one is not."""
    count = 100
    begin = round(count * share)
    step = hidden_step(count, 0.01, share_ratio=begin / count)
    after = np.asarray(step * (np.arange(count) >= begin), np.float64)
    assert change_points(1.5 * after, 0.01) == (begin,)
    assert change_points(0.5 * after, 0.01) == ()


def wandering(seed: int, count: int = 60) -> Values:
    """Return noise of 1.6 % that is correlated over two blocks, as the swing of a power controller without a rhythm."""
    values = noise(count + 50, 0.014, seed)
    for i in range(1, len(values)):
        values[i] += 0.5 * values[i - 1]
    return values[-count:]


def swung_levels(values: Values) -> int:
    return len(find_levels(values, swing_variance(values, cycle_variance(values, CYCLE_COUNT))))


def test_swing_without_a_rhythm_has_no_levels() -> None:
    """The quietest cycles give levels to a third of such series or more; the long-run variance gives levels to 3 % at most."""
    made = [wandering(seed) for seed in range(100)]
    assert sum(len(levels_of(values)) > 1 for values in made) >= 33
    assert sum(swung_levels(values) > 1 for values in made) <= 3


@pytest.mark.parametrize("shape", [np.arange(60) >= 30, np.abs(np.arange(60) - 25) < 10, np.arange(60) // 12 % 2])
def test_levels_beside_a_swing_without_a_rhythm_are_found(shape: Values) -> None:
    """A level 12 % apart is found: its own step does not count as variance of the swing."""
    assert sum(swung_levels(wandering(seed) + 0.12 * shape) > 1 for seed in range(30)) >= 27


def test_line_is_no_variance_of_a_swing() -> None:
    """A straight drift leaves the variance beside the line, not that beside the few levels that it resembles."""
    line, quiet = np.linspace(0.0, 0.3, 60), 1e-6
    values = line + noise(60, 1e-3, 1)
    assert swing_variance(values, quiet) < 4e-6
