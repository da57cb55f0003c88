"""Tests of a lane's statistics and of a thread's cost."""

from __future__ import annotations

import pytest

from gpuwatch.sampling.pace import Pace, ThreadCost

MS = 1_000_000
S = 1_000_000_000


def test_statistics_hold_lateness_losses_and_rate() -> None:
    pace = Pace()
    for second in range(100):
        pace.note(second * S, second * 1000, 1 * MS, 1 if second == 70 else 0)
    found = pace.statistics("fast", 100 * S, None)
    assert found.asked_count == 60  # of the last minute only
    assert found.missed_count == 1
    assert found.rate_hz == pytest.approx(1.0)
    assert found.late_p50_ns == 70_000
    assert (found.late_p99_ns, found.late_max_ns) == (99_000, 99_000)
    assert found.cost_ratio == pytest.approx(0.001)


def test_statistics_without_passes_are_zero() -> None:
    found = Pace().statistics("slow", S, "lost")
    assert (found.asked_count, found.rate_hz, found.late_max_ns, found.lost) == (0, 0.0, 0, "lost")
    assert ThreadCost().ratio() is None


def test_thread_cost_is_its_share_of_a_core() -> None:
    spent = iter([0, 5 * MS, 20 * MS])
    cost = ThreadCost(lambda: next(spent))
    for now_ns in (0, S // 2, S, 2 * S):
        cost.note(now_ns)
    assert cost.ratio() == pytest.approx(0.01)
