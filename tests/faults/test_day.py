"""Tests of a simulated day: memory, threads and descriptors hardly grow after the first hour, readings fit the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.sampling.pace import Pace
from tests.faults import day


def test_minutes_of_a_day_are_judged_within_a_budget(tmp_path: Path) -> None:
    """Three windows of a short day with four GPUs are valid, although the budget drops segments."""
    found = day.day(tmp_path, 0.05, budget_bytes=192 << 10, segment_bytes=96 << 10, gpus_count=4)
    assert found["windows"] == {"valid": 3}
    assert found["dropped_segments_count"] >= 2


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_simulated_day_does_not_grow(tmp_path: Path) -> None:
    found = day.day(tmp_path, progress=True)
    assert sum(found["windows"].values()) == 1440
    assert found["dropped_segments_count"] > 50


def test_pace_keeps_rare_passes_for_a_minute() -> None:
    """One query per second for hours leaves only the passes of the last minute."""
    pace = Pace()
    for second in range(20_000):
        pace.note(second * 1_000_000_000, 0, 1000, 0)
    assert len(pace._passes) == 61
    assert pace.statistics("slow", 19_999_000_000_000, None).asked_count == 61
