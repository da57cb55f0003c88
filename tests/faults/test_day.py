"""A simulated day: memory, threads, descriptors and segments stay as they were after its first hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.pace import Pace
from tests.faults import day


def test_minutes_of_a_day_is_judged_and_leaves_a_sound_store(tmp_path: Path) -> None:
    found = day.day(tmp_path, 0.1)
    assert sum(found["windows"].values()) == 6
    assert all(look["dropped_count"] == 0 for look in found["looks"])


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_day_does_not_grow(tmp_path: Path) -> None:
    found = day.day(tmp_path, 24.0)
    looks = found["looks"]
    for of in ("memory_bytes", "judge_memory_bytes"):
        assert day.growth_ratio(looks, of) <= 0.05, of
    for of in ("threads_count", "descriptors_count"):
        assert max(look[of] for look in looks) <= looks[4][of] + 2, of
    assert max(look["readings_bytes"] for look in looks) <= found["budget_bytes"]
    assert sum(found["windows"].values()) == 1440


def test_what_is_asked_rarely_is_remembered_for_a_minute_and_no_longer() -> None:
    """Hours of a question asked each second leave sixty passes, not as many as of one asked at 200 Hz."""
    pace = Pace()
    for second in range(20_000):
        pace.note(second * 1_000_000_000, 0, 1000, 0)
    assert len(pace._passes) == 61
    assert pace.statistics("slow", 19_999_000_000_000, None).asked_count == 61
