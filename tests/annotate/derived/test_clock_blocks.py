"""Tests of the clock in blocks, stamped or by the driver, and of the shifts that its levels imply."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.derived.clock_blocks import ClockBlocks, clock_blocks
from annotate.evidence import Evidence, Timings, Values
from tests.annotate.builders import BEGIN_NS, Signal, evidence
from tests.examples import share_of

few = settings(max_examples=share_of(40))


def blocks_of(about: Evidence) -> ClockBlocks:
    found = clock_blocks(about)
    assert found is not None
    return found


def stamped(mhz: Values, length_s: float = 4.0, **signals: Signal) -> Evidence:
    took_s = length_s / len(mhz)
    at_ns = BEGIN_NS + (np.arange(len(mhz)) * took_s * 1e9).astype(np.int64)
    return evidence(length_s=length_s, signals=signals, timings=Timings(at_ns, np.full(len(mhz), took_s * 0.99), mhz))


def step_at(middle: float, low: float, high: float, count: int = 4000) -> Values:
    return np.where(np.arange(count) < middle * count, high, low)


def test_stamps_fill_blocks_of_a_refresh() -> None:
    """A window of 4 s has forty blocks of 100 ms, each with the mean clock of its entries."""
    found = blocks_of(stamped(step_at(0.5, 1500.0, 1800.0)))
    assert len(found.mhz) == 40
    assert found.width_ns == 100_000_000
    assert found.stamped.all()
    assert found.mhz[[0, 19, 20, 39]].tolist() == pytest.approx([1800.0, 1800.0, 1500.0, 1500.0])


@pytest.mark.parametrize(("entries", "blocks"), [(1200, 40), (120, 40), (60, 20), (7, 2), (2, 1)])
def test_block_holds_three_stamped_entries(entries: int, blocks: int) -> None:
    """Blocks of long entries hold at least three entries on average; a window with two entries has one block."""
    assert len(blocks_of(stamped(np.full(entries, 1500.0))).mhz) == blocks


def test_times_without_clocks_widen_no_block() -> None:
    about = stamped(np.full(60, 1500.0))
    assert about.timings is not None
    assert len(blocks_of(replace(about, timings=replace(about.timings, sm_clock_mhz=None))).mhz) == 40


def test_clock_after_the_windows_end_is_ignored() -> None:
    """The driver's clock is read three quarters of a refresh late, but never after the window's end."""
    shown = evidence(length_s=4.0, signals={"sm_clock_mhz": lambda t: 1500 if t <= 4.0 else 1980})
    assert blocks_of(shown).mhz.tolist() == [1500.0] * 40


def test_long_window_has_at_most_600_blocks() -> None:
    about = evidence(length_s=6.0)
    longer = replace(about, window=replace(about.window, end_ns=about.window.begin_ns + 3600 * 10**9))
    assert len(blocks_of(longer).mhz) == 600


def test_plain_window_shows_the_drivers_clock() -> None:
    """A step of the clock is placed at its true time, although the gauge shows it up to a refresh late."""
    found = blocks_of(evidence(length_s=4.0, period_s=0.025, signals={"sm_clock_mhz": lambda t: 1980 if t < 2.07 else 1500}))
    assert not found.stamped.any()
    assert found.covered_ratio == 1.0
    assert found.mhz[[19, 20]].tolist() == [1980.0, 1500.0]


def test_idle_moments_have_no_clock() -> None:
    idle = {"event_reasons_mask": lambda t: int(1 < t < 2), "sm_clock_mhz": lambda t: 345 if 1 < t < 2 else 1980}
    found = blocks_of(evidence(length_s=4.0, signals=idle))
    assert set(found.mhz[found.known].tolist()) == {1980.0}
    assert found.covered_ratio == pytest.approx(0.75, abs=0.05)


def test_scaled_gauge_fills_blocks_without_stamps() -> None:
    """The gauge reads 10 % too high; blocks with both clocks give the scale for those without stamps."""
    mhz = np.where(np.arange(4000) < 2400, 1800.0, np.nan)
    found = blocks_of(stamped(mhz, sm_clock_mhz=1980))
    assert found.stamped_ratio == pytest.approx(0.6)
    assert found.covered_ratio == 1.0
    assert found.scale == pytest.approx(1800.0 / 1980.0)
    assert found.mhz.tolist() == pytest.approx([1800.0] * 40)


def test_two_stamps_of_a_plain_window_scale_the_gauge() -> None:
    about = evidence(length_s=4.0, declared={"true_clock_mhz": 1800.0, "stamped_s": 4.0})
    assert blocks_of(about).mhz.tolist() == pytest.approx([1800.0] * 40)


def test_unobserved_clock_has_no_blocks() -> None:
    assert clock_blocks(evidence(signals={"sm_clock_mhz": None})) is None
    assert clock_blocks(evidence(length_s=0.0)) is None


@few
@given(share=st.floats(0.25, 0.75), ratio=st.floats(0.5, 0.95), beta=st.floats(0.2, 1.2))
def test_shift_of_a_step_agrees_with_arithmetic(share: float, ratio: float, beta: float) -> None:
    """The mean shift agrees with arithmetic: positive from the high level, negative from the low level."""
    share = round(share * 40) / 40
    low_mhz, high_mhz = 1980.0 * ratio, 1980.0
    found = blocks_of(stamped(step_at(share, low_mhz, high_mhz)))
    low, high = found.levels()
    slower = (high_mhz / low_mhz) ** beta
    assert found.mean_shift_ratio(float(np.exp(high.mean)), beta) == pytest.approx((1 - share) * (slower - 1), rel=1e-3)
    assert found.mean_shift_ratio(float(np.exp(low.mean)), beta) == pytest.approx(share * (1 / slower - 1), rel=1e-3)


@few
@given(factor=st.floats(0.5, 2.0), seed=st.integers(0, 999))
def test_shift_does_not_depend_on_the_gauges_scale(factor: float, seed: int) -> None:
    mhz = np.random.default_rng(seed).uniform(1400.0, 1900.0, 4000)
    plain, scaled = blocks_of(stamped(mhz)), blocks_of(stamped(mhz * factor))
    assert scaled.mean_shift_ratio(1500.0 * factor, 0.9) == pytest.approx(plain.mean_shift_ratio(1500.0, 0.9), abs=1e-9)
