"""Tests of busy shares: GPM over short windows, and lost utilisation at several rates of reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotate.capsule.unpack import unpack
from annotate.derived.busy_share import busy_witnesses, gauge_lost_ratio
from annotate.evidence import Evidence
from annotate.judge import judge
from tests.annotate.builders import evidence

# Triton's do_bench of a product of 4096³ on an H200: GPM read zero in both windows.
_SHORT = unpack(Path("tests/traces/h200-short-windows.capsule").read_bytes())


@pytest.mark.parametrize("recorded", _SHORT)
def test_short_busy_window_is_not_reported_as_idle(recorded: Evidence) -> None:
    """GPM lacks up to the last 0.1 s before a row, which is the whole length of such a window."""
    assert "no-work" not in [each.rule for each in judge(recorded).findings if each.severity is not None]


def test_rows_that_extend_beyond_the_window_show_rest() -> None:
    shares = busy_witnesses(evidence(length_s=3.0, signals={"sm_activity_ratio": lambda _: 0.0}))
    assert [(each.ratio, each.most_ratio) for each in shares if each.witness == "SM activity"] == [(0.0, 0.0)]


@pytest.mark.parametrize("period_s", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("stall_s", [2.6, 4.1, 6.9])
def test_rarely_read_stall_may_extend_to_the_next_reading(period_s: float, stall_s: float) -> None:
    """The lost share covers a stall at any place between two rare readings, except for one refresh of the gauge."""
    for offset_s in (0.0, 0.31, 0.77):
        begin_s = 30.0 + offset_s
        busy = {"utilization_ratio": lambda t, b=begin_s: 0.0 if b <= t < b + stall_s else 0.97}
        lost = gauge_lost_ratio(evidence(length_s=60.0, period_s=period_s, signals=busy))
        assert lost is not None
        assert 0.97 * (stall_s - 0.208) / 60.0 <= lost <= (stall_s + 2 * period_s) / 60.0


def test_often_read_stall_counts_with_its_length() -> None:
    busy = {"utilization_ratio": lambda t: 0.0 if 3.0 <= t < 3.6 else 0.97}
    lost = gauge_lost_ratio(evidence(length_s=6.0, signals=busy))
    assert lost == pytest.approx(0.97 * 0.6 / 5.6, rel=0.1)


@pytest.mark.parametrize("period_s", [0.05, 1.0])
def test_steady_utilisation_loses_nothing_at_any_read_rate(period_s: float) -> None:
    assert gauge_lost_ratio(evidence(length_s=60.0, period_s=period_s)) == 0.0
