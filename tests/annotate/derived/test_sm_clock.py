"""Tests of the SM clock of a working GPU."""

from __future__ import annotations

import numpy as np

from annotate.derived.sm_clock import median_mhz, working
from annotate.evidence import Column
from tests.annotate.builders import BEGIN_NS, evidence

BLOCK_NS = 100_000_000


def series(values: list[float]) -> Column:
    return Column(BEGIN_NS + BLOCK_NS * np.arange(len(values), dtype=np.int64), np.array(values, np.float64))


def test_working_leaves_out_the_first_refresh() -> None:
    """The first refresh is omitted because it covers the time before the window."""
    clock = working(evidence(length_s=1.0, signals={"sm_clock_mhz": lambda t: 345 if t < 0.1 else 1980}))
    assert set(clock.values.tolist()) == {1980.0}


def test_working_is_empty_when_mostly_idle() -> None:
    """A GPU that idles for two thirds of the window has no working clock."""
    assert len(working(evidence(signals={"event_reasons_mask": lambda t: 1 if t < 4 else 0}))) == 0


def test_idle_moments_are_left_out() -> None:
    about = evidence(
        signals={"event_reasons_mask": lambda t: 1 if 2 < t < 3 else 0, "sm_clock_mhz": lambda t: 345 if 2 < t < 3 else 1980}
    )
    assert np.nanmin(working(about).values) == 1980.0


def test_window_below_three_refreshes_has_no_working_clock() -> None:
    clock = working(evidence(length_s=0.29))
    assert len(clock) == 0
    assert median_mhz(clock) is None
