"""A simulated day: memory, threads, descriptors and segments stay as they were after its first hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import day


def test_twenty_minutes_of_a_day_is_judged_and_leaves_a_sound_store(tmp_path: Path) -> None:
    found = day.day(tmp_path, 0.3)
    assert sum(found["windows"].values()) == 18
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
