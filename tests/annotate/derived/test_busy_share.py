"""Busy shares: GPM over short windows, and busy time that utilisation lost, by how often it was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotate.capsule.unpack import unpack
from annotate.derived.busy_share import busy_witnesses, gauge_lost_ratio
from annotate.evidence import Evidence
from annotate.judge import judge
from tests.annotate.builders import evidence

# Triton's do_bench of a product of 4096³ on an H200: GPM read zero of both.
_SHORT = unpack(Path("tests/traces/h200-short-windows.capsule").read_bytes())


@pytest.mark.parametrize("recorded", _SHORT)
def test_short_window_full_of_work_is_not_called_idle(recorded: Evidence) -> None:
    """GPM lacks up to the last 0.1 s before a row, which is all of such a window."""
    assert "no-work" not in [each.rule for each in judge(recorded).findings if each.severity is not None]


def test_rest_is_told_by_rows_that_reach_beyond_the_window() -> None:
    shares = busy_witnesses(evidence(length_s=3.0, signals={"sm_activity_ratio": lambda _: 0.0}))
    assert [(each.ratio, each.most_ratio) for each in shares if each.witness == "SM activity"] == [(0.0, 0.0)]


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
