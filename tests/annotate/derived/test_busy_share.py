"""Busy time that utilisation lost, by how often it was read."""

from __future__ import annotations

import pytest

from annotate.derived.busy_share import gauge_lost_ratio
from tests.annotate.builders import evidence


@pytest.mark.parametrize("period_s", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("stall_s", [2.6, 4.1, 6.9])
def test_seldom_read_stall_may_reach_to_the_next_reading(period_s: float, stall_s: float) -> None:
    """Nobody looked between two pages, so the stall is covered wherever it lay between them."""
    for offset_s in (0.0, 0.31, 0.77):
        begin_s = 30.0 + offset_s
        busy = {"utilization_ratio": lambda t, b=begin_s: 0.0 if b <= t < b + stall_s else 0.97}
        lost = gauge_lost_ratio(evidence(length_s=60.0, period_s=period_s, signals=busy))
        assert lost is not None
        assert 0.97 * (stall_s - 0.208) / 60.0 <= lost <= (stall_s + 2 * period_s) / 60.0


def test_often_read_stall_counts_as_it_was_seen() -> None:
    busy = {"utilization_ratio": lambda t: 0.0 if 3.0 <= t < 3.6 else 0.97}
    lost = gauge_lost_ratio(evidence(length_s=6.0, signals=busy))
    assert lost == pytest.approx(0.97 * 0.6 / 5.6, rel=0.1)


@pytest.mark.parametrize("period_s", [0.05, 1.0])
def test_steady_utilisation_lost_nothing_however_often_read(period_s: float) -> None:
    assert gauge_lost_ratio(evidence(length_s=60.0, period_s=period_s)) == 0.0
