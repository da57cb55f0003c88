"""Tests of ticks shared by timers."""

from __future__ import annotations

import pytest

from gpuwatch.clock import until_tick_s


@pytest.mark.parametrize(("now_s", "left_s"), [(7.0, 0.2), (7.05, 0.15), (7.15, 0.25), (7.1999, 0.2001)])
def test_until_tick_s_returns_the_time_to_a_shared_tick(now_s: float, left_s: float) -> None:
    """The next tick is between half and one and a half periods away."""
    assert until_tick_s(now_s, 0.2) == pytest.approx(left_s)
