"""Clock sensitivity: correct on simulated runs and recordings of an H200, and refused if a fit would mislead."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Timings, Values
from annotate.stats.line import robust_line
from annotate.times.clock_sensitivity import Corrected, NoFit, Sensitivity, sensitivity
from tests.examples import share_of
from tests.hardware.wander import part, wander
from tests.wandering import wandering

TRACES = Path(__file__).parents[2] / "traces"
CAPPED = ["gemm4k_bf16", "gemm16k_bf16", "conv3x3", "attention"]


def swinging(count: int, *, seed: int = 1, sd: float = 0.02, phi: float = 0.99) -> Values:
    """Return log clocks about 1400 MHz that vary as under a power cap."""
    noise = np.random.default_rng(seed).normal(size=count + 500)
    return np.asarray(np.log(1400.0) + wandering(sd * np.sqrt(1 - phi**2) * noise, phi)[500:], np.float64)


def run(
    *,
    beta: float = 0.9,
    count: int = 4000,
    time_s: float = 1e-3,
    sd: float = 0.02,
    noise: float = 0.003,
    seed: int = 1,
) -> Timings:
    """Return the times of a kernel that takes ``time_s`` at 1400 MHz."""
    clock = swinging(count, seed=seed, sd=sd)
    log_s = np.log(time_s) - beta * (clock - np.log(1400.0)) + noise * np.random.default_rng(seed + 1).normal(size=count)
    took_s = np.exp(log_s)
    at_ns = np.asarray((np.cumsum(took_s) - took_s) * 1e9, np.int64)
    return Timings(at_ns, took_s, np.exp(clock))


def recorded(name: str) -> Timings:
    with np.load(TRACES / f"{name}.npz") as archive:
        took_s = archive["ms"].astype(np.float64) / 1e3
        began_s = archive["t_s"] - archive["t_s"][0] if "t_s" in archive else np.cumsum(took_s) - took_s
        return Timings(np.asarray(began_s * 1e9, np.int64), took_s, archive["mhz"].astype(np.float64))


def fitted(timings: Timings) -> Sensitivity:
    found = sensitivity(timings)
    assert isinstance(found, Sensitivity), found
    return found


def reason(timings: Timings) -> str:
    found = sensitivity(timings)
    assert isinstance(found, NoFit), found
    return found.reason


class TestFit:
    @given(st.floats(0.3, 1.05), st.integers(0, 500))
    @settings(max_examples=share_of(25))
    def test_sensitivity_finds_the_exponent(self, beta: float, seed: int) -> None:
        found = fitted(run(beta=beta, seed=seed, noise=0.002))
        assert found.beta == pytest.approx(beta, abs=0.05)
        assert found.beta_low <= found.beta <= found.beta_high

    def test_stalls_are_counted_and_keep_the_exponent(self) -> None:
        timings = run()
        timings.took_s[50::200] *= 1.7
        found = fitted(timings)
        assert found.beta == pytest.approx(0.9, abs=0.03)
        assert found.slow_count == 20
        assert found.explained_ratio < 0.7

    def test_cold_iterations_are_counted_and_trimmed(self) -> None:
        timings = run()
        timings.took_s[:5] *= 4.0
        found = fitted(timings)
        assert (found.cold_count, found.count) == (5, 4000)
        assert found.beta == pytest.approx(0.9, abs=0.03)

    def test_explained_ratio_is_the_clocks_share_of_variance(self) -> None:
        # Variances of 0.018 squared by the clock and 0.009 squared by the rest: four fifths.
        found = fitted(run(count=20_000, noise=0.009))
        assert found.explained_ratio == pytest.approx(0.8, abs=0.06)

    def test_unstamped_iterations_are_left_out(self) -> None:
        timings = run()
        assert timings.sm_clock_mhz is not None
        timings.sm_clock_mhz[::3] = np.nan
        assert fitted(timings).count == 4000 - 1334

    def test_sensitivity_interval_covers_correlated_times(self) -> None:
        hits = 0
        for seed in range(120):
            rng = np.random.default_rng(seed)
            x = swinging(500, seed=1000 + seed, phi=0.9)
            y = -0.9 * x + 0.004 * wandering(rng.normal(size=500), 0.9)
            line = robust_line(x, y, high_sd=10.0, floor=1e-3)
            error = line.slope_error()
            assert error is not None
            hits += abs(line.slope + 0.9) <= error
        assert hits >= 0.88 * 120

    def test_sensitivity_leaves_out_invalid_times(self) -> None:
        timings = run()
        timings.took_s[[0, 7, 100]] = [np.nan, -1.0, np.inf]
        assert fitted(timings).count == 3997


class TestRefusal:
    def test_sensitivity_refuses_unstamped_times(self) -> None:
        timings = run()
        bare = Timings(timings.at_ns, timings.took_s)
        assert "nothing stamped" in reason(bare)
        assert "nothing stamped" in reason(Timings(timings.at_ns, timings.took_s, np.full(4000, np.nan)))
        empty = np.empty(0)
        assert "nothing stamped" in reason(Timings(np.empty(0, np.int64), empty, empty))

    def test_sensitivity_refuses_too_few_iterations(self) -> None:
        assert "60 are needed" in reason(run(count=59))

    def test_sensitivity_refuses_short_kernels(self) -> None:
        assert "30 µs" in reason(run(time_s=30e-6))

    @pytest.mark.parametrize("sd", [0.0, 0.001])
    def test_sensitivity_refuses_a_nearly_constant_clock(self, sd: float) -> None:
        assert "nothing to correct" in reason(run(sd=sd))

    @pytest.mark.parametrize("beta", [0.0, -0.5])
    def test_sensitivity_refuses_times_independent_of_the_clock(self, beta: float) -> None:
        assert "too loosely" in reason(run(beta=beta))

    def test_sensitivity_refuses_independently_varying_times(self) -> None:
        for seed in range(60):
            rng = np.random.default_rng(seed)
            own = wandering(0.01 * np.sqrt(1 - 0.999**2) * rng.normal(size=2500), 0.999)[500:]
            clock_mhz = np.exp(swinging(2000, seed=seed, phi=0.999))
            timings = Timings(np.arange(2000) * 1_000_000, 1e-3 * np.exp(own), clock_mhz)
            assert isinstance(sensitivity(timings), NoFit)

    def test_sensitivity_refuses_noisy_times(self) -> None:
        assert "too loosely" in reason(run(noise=0.08))

    def test_sensitivity_refuses_a_drift_during_a_clock_ramp(self) -> None:
        # The clock only falls, so its effect cannot be separated from another drift.
        fall = np.linspace(0.0, 1.0, 4000)
        clock = np.log(1500.0) - 0.04 * fall
        took_s = np.exp(np.log(1e-3) + 0.1 * fall + 0.001 * np.random.default_rng(3).normal(size=4000))
        found = reason(Timings(np.arange(4000) * 1_000_000, took_s, np.exp(clock)))
        assert "steeper than any kernel" in found

    def test_sensitivity_refuses_a_single_clock_change(self) -> None:
        clock = np.full(2000, np.log(1500.0))
        clock[:160] -= 0.05
        rng = np.random.default_rng(4)
        clock += 1e-4 * rng.normal(size=2000)
        took_s = np.exp(np.log(1e-3) - 0.9 * clock + 0.002 * rng.normal(size=2000))
        timings = Timings(np.arange(2000) * 1_000_000, took_s, np.exp(clock))
        assert isinstance(sensitivity(timings), NoFit)

    def test_refusal_is_one_sentence_on_one_line(self) -> None:
        for timings in (run(count=10), run(time_s=1e-5), run(sd=0.0), run(beta=0.0)):
            text = reason(timings)
            assert "\n" not in text
            assert text.endswith(".")
            assert len(text) < 128


class TestAtClock:
    @pytest.mark.parametrize("mhz", [1375.0, 1400.0, 1430.0])
    def test_at_clock_gives_the_time_at_a_fitted_clock(self, mhz: float) -> None:
        timings = run(beta=0.9)
        found = fitted(timings).at_clock(timings, mhz)
        assert isinstance(found, Corrected)
        truth_s = 1e-3 * (1400.0 / mhz) ** 0.9
        assert found.time_s == pytest.approx(truth_s, rel=1e-3)
        assert found.raw_s == np.median(timings.took_s)
        assert found.low_s is not None
        assert found.high_s is not None
        assert found.low_s <= found.time_s <= found.high_s

    def test_at_clock_interval_covers_the_true_time(self) -> None:
        known, held = 0, 0
        for seed in range(80):
            timings = run(seed=seed, count=2500, noise=0.01)
            fit = sensitivity(part(timings, 0, 1250))
            if not isinstance(fit, Sensitivity):
                continue
            found = fit.at_clock(part(timings, 1250, 2500), 1400.0)
            if isinstance(found, Corrected) and found.low_s is not None and found.high_s is not None:
                known += 1
                held += found.low_s <= 1e-3 <= found.high_s
        assert known > 40
        assert held >= 0.88 * known

    def test_at_clock_interval_widens_with_the_distance(self) -> None:
        timings = run(noise=0.008)
        fit = fitted(timings)
        near, far = fit.at_clock(timings, 1400.0), fit.at_clock(timings, fit.clock_low_mhz)
        assert isinstance(near, Corrected)
        assert isinstance(far, Corrected)
        assert near.low_s is not None
        assert far.low_s is not None
        assert np.log(far.time_s / far.low_s) > np.log(near.time_s / near.low_s)

    def test_at_clock_of_a_short_run_has_no_interval(self) -> None:
        timings = run()
        found = fitted(timings).at_clock(part(timings, 0, 100), 1400.0)
        assert isinstance(found, Corrected)
        assert found.low_s is None
        assert found.high_s is None

    @pytest.mark.parametrize("mhz", [1000.0, 1980.0, float("nan")])
    def test_at_clock_refuses_a_clock_outside_the_fit(self, mhz: float) -> None:
        timings = run()
        found = fitted(timings).at_clock(timings, mhz)
        assert isinstance(found, NoFit)
        assert "outside the fitted clocks" in found.reason

    def test_at_clock_refuses_iterations_outside_the_fit(self) -> None:
        timings = run()
        assert timings.sm_clock_mhz is not None
        faster = Timings(timings.at_ns, timings.took_s, timings.sm_clock_mhz * 1.3)
        found = fitted(timings).at_clock(faster, 1400.0)
        assert isinstance(found, NoFit)
        assert "outside the fitted clocks" in found.reason

    def test_at_clock_refuses_times_without_clocks(self) -> None:
        timings = run()
        found = fitted(timings).at_clock(Timings(timings.at_ns, timings.took_s), 1400.0)
        assert isinstance(found, NoFit)


class TestRecordings:
    @pytest.mark.parametrize("name", CAPPED)
    def test_sensitivity_of_one_half_steadies_the_other(self, name: str) -> None:
        """A fit of the first half reduces the scatter in the second half to less than half, and to at most 0.2 %."""
        row = wander(name, recorded(f"natural_{name}"))
        for scatter in row.scatters:
            assert scatter.corrected_ratio is not None
            assert scatter.corrected_ratio <= 0.002
            assert scatter.corrected_ratio < 0.5 * scatter.raw_ratio
        assert row.cv_corrected_ratio is not None
        assert row.cv_corrected_ratio < row.cv_raw_ratio

    @pytest.mark.parametrize("name", CAPPED)
    def test_sensitivity_of_the_second_half_steadies_the_first(self, name: str) -> None:
        timings = recorded(f"natural_{name}")
        half = len(timings.took_s) // 2
        backwards = wander(name, joined(part(timings, half, 2 * half), part(timings, 0, half)))
        assert backwards.scatters[0].corrected_ratio is not None
        assert backwards.scatters[0].corrected_ratio < 0.5 * backwards.scatters[0].raw_ratio

    @pytest.mark.parametrize("name", CAPPED)
    def test_parts_of_a_run_agree_at_one_clock(self, name: str) -> None:
        timings = recorded(f"natural_{name}")
        count = len(timings.took_s)
        fit = fitted(part(timings, 0, count // 2))
        mhz = float(np.median(timings.sm_clock_mhz if timings.sm_clock_mhz is not None else np.nan))
        ends = np.linspace(count // 2, count, 4).astype(int)
        found = [fit.at_clock(part(timings, first, end), mhz) for first, end in itertools.pairwise(ends)]
        times_s = np.array([each.time_s for each in found if isinstance(each, Corrected)])
        assert len(times_s) == 3
        assert np.ptp(times_s) < 0.002 * times_s.mean()

    def test_sensitivity_refuses_an_uncapped_kernel(self) -> None:
        timings = recorded("natural_gemm4k_fp32")
        assert "nothing to correct" in reason(timings)
        row = wander("gemm4k_fp32", timings)
        assert isinstance(row.fit, NoFit)
        assert row.cv_corrected_ratio is None
        assert row.scatters[0].corrected_ratio is None
        assert row.scatters[0].raw_ratio < 0.0005

    def test_sensitivity_refuses_a_memory_bound_copy(self) -> None:
        assert "too loosely" in reason(recorded("beta_copy1g"))

    @pytest.mark.parametrize(("name", "beta"), [("gemm4k_bf16", 0.93), ("attention", 1.05)])
    def test_sensitivity_leaves_out_cold_calls(self, name: str, beta: float) -> None:
        """A recording with heat and pauses gives the exponent, with cold calls left out."""
        found = fitted(recorded(f"beta_{name}"))
        assert found.beta == pytest.approx(beta, abs=0.02)
        assert found.r < -0.99
        # One call in a hundred follows a pause; the recording does not hold the times of pauses.
        assert found.cold_count + found.slow_count == 4

    def test_wander_refuses_an_unstamped_run(self) -> None:
        with pytest.raises(ValueError, match="four warm iterations with their clocks, found 0; measure longer"):
            wander("none", Timings(np.arange(10), np.full(10, 1e-3)))


def joined(first: Timings, second: Timings) -> Timings:
    assert first.sm_clock_mhz is not None
    assert second.sm_clock_mhz is not None
    began_ns = first.at_ns[-1] + int(first.took_s[-1] * 1e9)
    return Timings(
        np.concatenate([first.at_ns, second.at_ns - second.at_ns[0] + began_ns]),
        np.concatenate([first.took_s, second.took_s]),
        np.concatenate([first.sm_clock_mhz, second.sm_clock_mhz]),
    )
