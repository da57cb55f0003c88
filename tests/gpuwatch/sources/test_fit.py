"""Tests of the simulation's distance from recordings of a real H200 (``tests/traces/README.md``).

The ``natural_*``, ``per_iteration_*`` and ``power_step`` recordings determined the figures of the kernels and of the power
controller; ``scenarios.npz`` did not.  Distance is the largest relative difference of the 5, 25, 50, 75 and 95 % quantiles.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from annotate.evidence import Evidence, Timings, Values
from gpuwatch.sources import recordings
from gpuwatch.sources.simulated import SCENES, simulate
from gpuwatch.sources.simulated.physics import Physics
from gpuwatch.sources.simulated.script import Script
from tests.gpuwatch.sources.logs import TRACES

SEEDS = range(4)
QUANTILES = (5, 25, 50, 75, 95)


@cache
def recorded(label: str) -> Evidence:
    return next(piece for piece in recordings.load(TRACES / "scenarios.npz") if piece.window.label == label)


@cache
def simulated(scene: str, seed: int) -> Evidence:
    return simulate(scene, seed=seed)[0]


def distance(sim: Values, rec: Values) -> float:
    return float(np.max(np.abs(np.nanpercentile(sim, QUANTILES) / np.nanpercentile(rec, QUANTILES) - 1.0)))


def times(piece: Evidence) -> Timings:
    assert piece.timings is not None
    return piece.timings


@pytest.mark.parametrize(
    ("label", "scene", "clock_bound", "power_bound", "time_bound"),
    [
        ("clean_gemm4k", "steady-gemm", 0.04, 0.04, 0.06),
        ("power_cap_gemm16k", "large-gemm", 0.05, 0.04, 0.04),
        ("gpu_contention_gemm4k", "neighbour", 0.08, 0.08, 0.06),
        ("idle_then_gemm4k", "from-idle", 0.09, 0.08, 0.06),
    ],
)
def test_fit_predicts_capped_runs_outside_the_fit(
    label: str, scene: str, clock_bound: float, power_bound: float, time_bound: float
) -> None:
    """Clock, power and times under the cap are close to those of recordings outside the fit."""
    real = recorded(label)
    for name, bound in (("sm_clock_mhz", clock_bound), ("power_w", power_bound)):
        pooled = np.concatenate([simulated(scene, seed).within(name).values for seed in SEEDS])
        assert distance(pooled, real.within(name).values) <= bound, name
    pooled = np.concatenate([times(simulated(scene, seed)).took_s for seed in SEEDS])
    assert distance(pooled, times(real).took_s) <= time_bound


def test_fit_predicts_an_unfitted_copy_run() -> None:
    """Power, times and clock of simulated copies are close to a recording outside the fit."""
    real, sim = recorded("clean_copy1g"), simulated("steady-copy", 0)
    settled = real.part(real.window.begin_ns + 1_000_000_000, real.window.end_ns)
    assert distance(sim.within("power_w").values, settled.within("power_w").values) <= 0.01
    assert distance(times(sim).took_s, times(real).took_s) <= 0.005
    assert set(sim.within("sm_clock_mhz").values) == set(settled.within("sm_clock_mhz").values) == {1980.0}


def test_fit_products_with_pauses_have_uncapped_times() -> None:
    """Products with 100 ms pauses take the recorded times within 1 %."""
    assert distance(times(simulated("bursty", 0)).took_s, times(recorded("sleep100_gemm16k")).took_s) <= 0.01


@pytest.mark.parametrize(
    ("name", "scene", "spread_bound"),
    [
        ("gemm4k_bf16", "steady-gemm", 0.03),
        ("gemm16k_bf16", "large-gemm", 0.02),
        ("conv3x3", "convolution", 0.06),
        ("attention", "attention", 0.02),
    ],
)
def test_fit_true_clock_spread_agrees_with_recordings(name: str, scene: str, spread_bound: float) -> None:
    """The spread and the median of the true clock match the recordings of the fit."""
    with np.load(TRACES / f"natural_{name}.npz") as archive:
        real = archive["mhz"].astype(float)[archive["t_s"] - archive["t_s"][0] > 1.0]
    pooled = np.concatenate([true_clock_mhz(scene, seed) for seed in SEEDS])
    assert distance(pooled, real) <= spread_bound
    assert np.median(pooled) == pytest.approx(np.median(real), rel=0.01)


@cache
def true_clock_mhz(scene: str, seed: int) -> Values:
    physics = Physics(Script(SCENES[scene]), f"fit/{seed}")
    while physics.now_ns < 11_000_000_000:
        physics.step()
    return np.array([m.clock_ratio for m in physics.history if m.end_ns > 4_000_000_000]) * 1980.0


def onset_ms(timings: Timings) -> float:
    """Return the time from the first iteration until ten times have a median over 5 % above that of the first 40 ms."""
    since_ms = (timings.at_ns - timings.at_ns[0]) / 1e6
    base_s = np.median(timings.took_s[since_ms < 40.0])
    return next(float(since_ms[i]) for i in range(len(since_ms) - 10) if np.median(timings.took_s[i : i + 10]) > 1.05 * base_s)


def test_fit_cap_onset_agrees_with_the_recording() -> None:
    """The simulated cap engages within 20 ms of the recorded onset."""
    real_ms = onset_ms(times(recorded("idle_then_gemm4k")))
    assert 56 <= real_ms <= 85
    for seed in range(8):
        assert onset_ms(times(simulated("from-idle", seed))) == pytest.approx(real_ms, abs=20)


def period_s(timings: Timings, bin_s: float = 0.05) -> float:
    """Return the strongest period of kernel time between 0.25 and 2.5 s."""
    number = ((timings.at_ns - timings.at_ns[0]) / 1e9 / bin_s).astype(int)
    values = np.array([np.median(timings.took_s[number == i]) for i in range(number[-1]) if (number == i).any()])
    power = np.abs(np.fft.rfft((values - values.mean()) * np.hanning(len(values)), 8192)) ** 2
    frequency = np.fft.rfftfreq(8192, bin_s)
    sought = (frequency > 0.4) & (frequency < 4.0)
    return float(1.0 / frequency[sought][np.argmax(power[sought])])


def test_fit_limit_cycle_has_a_period_of_one_second() -> None:
    """Recorded kernel times have a period of 1.00 ± 0.05 s, and simulated ones a median period of 1.0 ± 0.2 s."""
    for label in ("clean_gemm4k", "power_cap_gemm16k"):
        assert period_s(times(recorded(label))) == pytest.approx(1.0, abs=0.05)
    periods = [period_s(times(simulated(scene, seed))) for scene in ("steady-gemm", "large-gemm") for seed in SEEDS]
    assert np.median(periods) == pytest.approx(1.0, abs=0.2)


def test_fit_driver_clock_is_above_the_true_clock_when_capped() -> None:
    """Under the cap the driver's clock is 7 to 13 % above the true clock."""
    for scene in ("steady-gemm", "large-gemm", "attention"):
        shown = np.mean([simulated(scene, seed).within("sm_clock_mhz").values.mean() for seed in SEEDS])
        true = np.mean([true_clock_mhz(scene, seed).mean() for seed in SEEDS])
        assert 1.07 <= shown / true <= 1.13, scene
