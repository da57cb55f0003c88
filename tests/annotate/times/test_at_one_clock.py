"""Times at one clock: converted by the fitted exponent, unchanged at a constant clock, and refused otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Timings, Values
from annotate.times.at_one_clock import OneClockTimes, loosely_at_one_clock, one_clock_times
from annotate.times.clock_sensitivity import Sensitivity, sensitivity
from tests.examples import share_of


def swinging(count: int = 3000, beta: float = 0.9) -> Timings:
    at_ns = np.arange(count, dtype=np.int64) * 1_000_000
    mhz = 1400.0 * (1.0 + 0.03 * np.sin(at_ns / 1e9 * 2.0 * np.pi))
    noise = np.random.default_rng(0).standard_normal(count)
    return Timings(at_ns, np.asarray(1e-3 * (1400.0 / mhz) ** beta * (1.0 + 1e-3 * noise)), mhz)


def still(mhz: float = 1975.0, count: int = 100) -> Timings:
    return Timings(np.arange(count, dtype=np.int64) * 1_000_000, np.full(count, 9e-4), np.full(count, mhz))


def at_one_clock(timings: Timings) -> OneClockTimes:
    return one_clock_times(timings, sensitivity(timings))


def test_fitted_times_lose_the_clocks_swing() -> None:
    timings = swinging()
    found = at_one_clock(timings)
    assert found.clock_mhz == pytest.approx(1400.0, abs=5.0)
    assert found.took_s.std() < 0.1 * timings.took_s.std()


@settings(max_examples=share_of(20))
@given(mhz=st.floats(1000.0, 2000.0))
def test_factor_follows_the_exponent(mhz: float) -> None:
    found = at_one_clock(swinging())
    assert isinstance(found.fit, Sensitivity)
    assert found.clock_mhz is not None
    assert found.factor(mhz) == pytest.approx((found.clock_mhz / mhz) ** found.fit.beta)
    assert found.moved_ratio(found.clock_mhz) == 0.0
    assert found.moved_ratio(mhz) >= 0.0


def test_constant_clock_needs_no_exponent() -> None:
    """Times at a constant clock need no conversion, and the factor to any clock is 1."""
    found = at_one_clock(still())
    assert (found.clock_mhz, found.fit, found.factor(1500.0), found.moved_ratio(1500.0)) == (1975.0, None, 1.0, 0.0)


@pytest.mark.parametrize(
    ("mhz", "why"),
    [
        (None, "nothing stamped the clock"),
        (np.full(100, np.nan), "nothing stamped the clock"),
        (np.where(np.arange(100) < 30, 1500.0, np.nan), "30% of the times carry their clock"),
        (np.where(np.arange(100) < 50, 1500.0, 1700.0), "loosely"),
    ],
)
def test_times_without_one_clock_have_a_reason(mhz: Values | None, why: str) -> None:
    timings = Timings(still().at_ns, still().took_s, mhz)
    found = at_one_clock(timings)
    assert not found.is_at_one_clock
    assert why in found.refusal
    assert found.took_s is timings.took_s


def test_unstamped_times_are_left_out_at_a_varying_clock() -> None:
    timings = swinging()
    assert timings.sm_clock_mhz is not None
    mhz = np.where(np.arange(3000) < 2400, timings.sm_clock_mhz, np.nan)
    assert len(at_one_clock(Timings(timings.at_ns, timings.took_s, mhz)).took_s) == 2400


def test_loose_exponent_is_that_of_a_kernel() -> None:
    """Least squares remove the clock's part of the times, but no more than a kernel's: the exponent is at most 1."""
    timings = swinging()
    found = loosely_at_one_clock(timings)
    assert found is not None
    assert found.took_s.std() < 0.1 * timings.took_s.std()
    steep = loosely_at_one_clock(swinging(beta=4.0))
    assert steep is not None
    assert steep.took_s.std() == pytest.approx(swinging(beta=3.0).took_s.std(), rel=0.05)
    assert loosely_at_one_clock(Timings(timings.at_ns, timings.took_s)) is None
