"""The SM clock of a working GPU, and sudden moves of a series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.derived.sm_clock import median_mhz, sudden, working
from annotate.evidence import Column
from tests.annotate.builders import BEGIN_NS, evidence
from tests.examples import share_of

BLOCK_NS = 100_000_000


def series(values: list[float]) -> Column:
    return Column(BEGIN_NS + BLOCK_NS * np.arange(len(values), dtype=np.int64), np.array(values, np.float64))


def test_working_leaves_out_the_first_refresh() -> None:
    """The first refresh is left out because it speaks of the time before."""
    clock = working(evidence(length_s=1.0, signals={"sm_clock_mhz": lambda t: 345 if t < 0.1 else 1980}))
    assert set(clock.values.tolist()) == {1980.0}


def test_working_is_empty_when_half_idle() -> None:
    """A GPU that idles for half of the window has no working clock."""
    assert len(working(evidence(signals={"event_reasons_mask": lambda t: 1 if t < 4 else 0}))) == 0


def test_idle_moments_are_left_out() -> None:
    about = evidence(
        signals={"event_reasons_mask": lambda t: 1 if 2 < t < 3 else 0, "sm_clock_mhz": lambda t: 345 if 2 < t < 3 else 1980}
    )
    assert np.nanmin(working(about).values) == 1980.0


def test_a_window_shorter_than_three_refreshes_has_none() -> None:
    clock = working(evidence(length_s=0.29))
    assert len(clock) == 0
    assert median_mhz(clock) is None


@settings(max_examples=share_of(50))
@given(
    before=st.floats(500, 2000),
    ratio=st.floats(0.5, 0.9) | st.floats(1.1, 2.0),
    first=st.integers(5, 40),
    then=st.integers(5, 40),
    seed=st.integers(0, 99),
)
def test_two_levels_are_told_apart_wherever_they_meet(before: float, ratio: float, first: int, then: int, seed: int) -> None:
    noise = 1.0 + 0.002 * np.random.default_rng(seed).standard_normal(first + then)
    levels = np.array([before] * first + [before * ratio] * then) * noise
    move = sudden(series(levels.tolist()), block_ns=BLOCK_NS, least_ratio=0.03)
    assert move is not None
    assert move.ratio == pytest.approx(ratio - 1.0, abs=0.02)
    assert (move.at_ns - BEGIN_NS) // BLOCK_NS == first


@settings(max_examples=share_of(50))
@given(seed=st.integers(0, 10**6), spread_ratio=st.floats(0.0, 0.05), count=st.integers(0, 5) | st.integers(20, 100))
def test_noise_alone_is_no_move(seed: int, spread_ratio: float, count: int) -> None:
    values = 1500.0 * (1.0 + spread_ratio * np.random.default_rng(seed).uniform(-1, 1, count))
    assert sudden(series(values.tolist()), block_ns=BLOCK_NS, least_ratio=0.03) is None


@pytest.mark.parametrize("drift_ratio", [-0.3, -0.05, 0.05, 0.3])
def test_a_straight_line_is_no_move(drift_ratio: float) -> None:
    values = [1500.0 * (1.0 + drift_ratio * i / 60) for i in range(60)]
    assert sudden(series(values), block_ns=BLOCK_NS, least_ratio=0.03) is None


def test_a_dip_is_no_move() -> None:
    assert sudden(series([1560.0] * 20 + [1400.0] * 4 + [1560.0] * 20), block_ns=BLOCK_NS, least_ratio=0.03) is None
