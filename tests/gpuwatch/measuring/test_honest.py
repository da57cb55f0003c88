"""Tests of bench()'s statistics on series with a known median: coverage of intervals, steadiness, and the power limit."""

from __future__ import annotations

import numpy as np
import pytest

from annotate.evidence import Timings, Values
from gpuwatch.measuring import Measurement, bench
from gpuwatch.measuring.steady import CAPPED, QUICK, is_steady, power_limited
from tests.gpuwatch.measuring.scripted import Model, ScriptedTimer, World, nothing
from tests.wandering import wandering

CALL_S = 1e-3


def correlated(rho: float, sd_ratio: float, seed: int) -> Model:
    """Return a model of AR(1) times with the long-run median CALL_S."""
    rng = np.random.default_rng(seed)
    state = 0.0

    def model(at_s: Values, calls: int) -> tuple[Values, Values]:
        nonlocal state
        shocks = sd_ratio * np.sqrt(1 - rho**2) * rng.standard_normal(len(at_s))
        series = wandering(shocks, rho, state)
        state = float(series[-1])
        return CALL_S * (1.0 + series), np.full(len(at_s), 1980.0)

    return model


@pytest.mark.parametrize("rho", [0.0, 0.9, 0.98])
def test_interval_covers_the_true_median_as_often_as_stated(rho: float) -> None:
    trials, hits = 60, 0
    for seed in range(trials):
        world = World(ScriptedTimer(correlated(rho, 0.02, seed)))
        ci_s = bench(nothing, timer=world.timer, seams=world.environment(), target_ratio=0.002).ci_s
        assert ci_s is not None
        hits += ci_s[0] <= CALL_S <= ci_s[1]
    # 95 % nominal: a coverage of 91 % gives 51 of 60 or more in 96 % of cases.
    assert hits >= 51


def test_correlated_times_have_fewer_effective_entries() -> None:
    """Correlated times need longer for the same interval, and a smaller part of the entries is effective."""
    apart, alike = measured(correlated(0.0, 0.05, 1)), measured(correlated(0.99, 0.05, 1))
    assert alike.attempt.took_s > 1.5 * apart.attempt.took_s
    assert alike.effective_count / alike.count < 0.1 * apart.effective_count / apart.count


def measured(model: Model) -> Measurement:
    world = World(ScriptedTimer(model))
    return bench(nothing, timer=world.timer, seams=world.environment(), target_ratio=0.004)


def series(took_s: Values, mhz: Values | None = None) -> Timings:
    at_ns = (np.cumsum(took_s * 1e9) - took_s * 1e9).astype(np.int64)
    return Timings(at_ns, took_s, mhz)


class TestSteady:
    def test_noise_alone_is_mostly_steady(self) -> None:
        """Noise alone is mostly steady; bench() checks again after the next 0.2 s of work."""
        rng = np.random.default_rng(3)
        steady = [is_steady(series(CALL_S * (1 + 0.05 * rng.standard_normal(1500))), QUICK) for _ in range(100)]
        assert sum(steady) >= 85

    @pytest.mark.parametrize("step_ratio", [0.02, -0.02, 0.16])
    def test_times_with_a_step_are_not_steady(self, step_ratio: float) -> None:
        rng = np.random.default_rng(4)
        took_s = CALL_S * (1 + 0.005 * rng.standard_normal(1500)) * np.where(np.arange(1500) < 1000, 1.0, 1.0 + step_ratio)
        assert not is_steady(series(took_s), QUICK)

    def test_too_few_times_are_not_steady(self) -> None:
        assert not is_steady(series(np.full(900, CALL_S)), QUICK)
        assert not is_steady(series(np.full(2900, CALL_S)), CAPPED)
        assert not is_steady(series(np.empty(0)), QUICK)

    def test_calls_of_seconds_are_compared_in_groups_of_three(self) -> None:
        assert not is_steady(series(np.full(4, 2.0)), QUICK)
        assert is_steady(series(np.full(7, 2.0)), QUICK)

    def test_outliers_do_not_hide_steadiness(self) -> None:
        took_s = np.full(1500, CALL_S)
        took_s[::50] = 10 * CALL_S
        assert is_steady(series(took_s), QUICK)

    def test_steadiness_uses_the_known_part_of_the_clock(self) -> None:
        mhz = np.full(1500, 1980.0)
        mhz[::2] = np.nan
        assert is_steady(series(np.full(1500, CALL_S), mhz), QUICK)


class TestPowerLimited:
    def test_power_limit_follows_from_the_latest_clock(self) -> None:
        mhz = np.where(np.arange(1000) < 100, 1980.0, 1500.0)
        assert power_limited(series(np.full(1000, CALL_S), mhz), 1980.0) is True
        assert power_limited(series(np.full(1000, CALL_S), np.full(1000, 1976.0)), 1980.0) is False

    def test_power_limit_is_none_without_clock_or_maximum(self) -> None:
        assert power_limited(series(np.full(10, CALL_S)), 1980.0) is None
        assert power_limited(series(np.full(10, CALL_S), np.full(10, 1980.0)), None) is None
        assert power_limited(series(np.full(10, CALL_S), np.full(10, np.nan)), 1980.0) is None
