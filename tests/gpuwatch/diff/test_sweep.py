"""Tests of sweeps: Holm's correction, the trend over doublings, and the crossover."""

from __future__ import annotations

import pytest

from gpuwatch.diff.render_timed import sweep_lines
from gpuwatch.diff.sweep import SweepPoint, summarise
from gpuwatch.diff.timed_pair import TimedPair, incomparable


def point(n: int, ratio: float, half: float = 0.002, decision: str | None = None) -> SweepPoint:
    said = decision or ("FASTER" if ratio > 1 else "SLOWER")
    return SweepPoint({"n": n}, {}, TimedPair(said, "", ratio, ratio - half, ratio + half, None, "valid", None, None))


def test_crossover_lies_between_a_slower_and_a_faster_size() -> None:
    found = summarise([point(1024, 0.9), point(4096, 1 / 0.9), point(16384, 1.3)])
    assert found.crossover == pytest.approx(2048)


def test_crossover_needs_both_decisions() -> None:
    assert summarise([point(1024, 1.1), point(4096, 1.2)]).crossover is None


def test_trend_is_the_growth_of_the_ratio_per_doubling() -> None:
    found = summarise([point(1024 << step, 1.02**step * 1.1) for step in range(5)]).trend
    assert found is not None
    assert found.name == "n"
    assert found.growth == pytest.approx(1.02)
    assert found.is_clear


def test_trend_needs_three_values_of_one_size() -> None:
    assert summarise([point(1024, 1.1), point(2048, 1.2)]).trend is None
    mixed = [SweepPoint({"n": n, "m": n}, {}, point(n, 1.1).timed) for n in (1, 2, 4)]
    assert summarise(mixed).trend is None


def test_scattered_ratios_have_no_clear_trend() -> None:
    found = summarise([point(1024 << step, ratio) for step, ratio in enumerate((1.1, 1.3, 1.05, 1.28, 1.12))]).trend
    assert found is not None
    assert not found.is_clear


def test_weak_difference_fails_holms_correction() -> None:
    """A difference that is just significant alone is INCONCLUSIVE among ten points; a strong one stays FASTER."""
    found = summarise([point(1024 << step, 1.0021 if step else 1.2) for step in range(10)])
    decisions = [each.timed.decision for each in found.points]
    assert decisions == ["FASTER"] + ["INCONCLUSIVE"] * 9
    assert "not among 10 points (Holm)" in found.points[1].timed.reason


def test_lines_name_each_point_trend_and_crossover() -> None:
    points = [point(1024, 0.9), point(4096, 1.1), point(16384, 1.3), SweepPoint({"n": 9}, {}, incomparable("B differs"))]
    text = "\n".join(sweep_lines(summarise(points)))
    assert "n=1024   SLOWER 0.900x [0.898, 0.902], clock not known" in text
    assert "n=9      INCOMPARABLE: B differs" in text
    assert "with each doubling of n" in text
    assert "crossover: both are equally fast near" in text
