"""Tests of the times and the true clock of simulated iterations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.evidence import Timings
from gpuwatch.clock import VirtualClock
from gpuwatch.sources.simulated import SCENES, Simulated, simulate


def timed(scene: str) -> Timings:
    (piece,) = simulate(scene)
    assert piece.timings is not None
    return piece.timings


@pytest.mark.parametrize(("scene", "beta"), [("steady-gemm", 0.93), ("attention", 0.99), ("convolution", 0.81)])
def test_simulated_times_follow_beta(scene: str, beta: float) -> None:
    """The slope of log time over log clock is −beta of the scene's kernel, within 0.05."""
    times = timed(scene)
    assert times.sm_clock_mhz is not None
    assert len(times.sm_clock_mhz) == len(times.took_s)
    slope = np.polyfit(np.log(times.sm_clock_mhz), np.log(times.took_s), 1)[0]
    assert -slope == pytest.approx(beta, abs=0.05)


def test_simulated_driver_clock_is_a_tenth_high_when_capped() -> None:
    """Under a cap the driver's clock is 8 to 14 % above the true clock."""
    (piece,) = simulate("steady-gemm")
    assert piece.timings is not None
    assert piece.timings.sm_clock_mhz is not None
    shown_mhz = np.nanmedian(piece.within("sm_clock_mhz").values)
    assert 1.08 <= shown_mhz / np.median(piece.timings.sm_clock_mhz) <= 1.14


def test_simulated_copy_clock_is_constant() -> None:
    """The true clock of an uncapped copy is 1976 MHz throughout."""
    clock_mhz = timed("steady-copy").sm_clock_mhz
    assert clock_mhz is not None
    assert np.allclose(clock_mhz, 1976.0)


def test_simulate_accepts_an_unregistered_scene() -> None:
    mine = replace(SCENES["steady-copy"], name="mine", bench=(4.5, 6.0))
    (piece,) = simulate(mine, seed=3)
    assert piece.window.label == "mine"
    assert piece.window.length_s == 1.5
    assert Simulated((mine,), VirtualClock()).name == "simulated:mine"
