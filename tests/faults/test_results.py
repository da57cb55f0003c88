"""Tests that the committed results of the long campaigns meet their requirements."""

from __future__ import annotations

from tests.faults import crowd, day, kills, results

KEPT = results.kept()


def test_kills_lost_at_most_a_second() -> None:
    """Two hundred kills lost at most 1 s of readings, and every open window was unproven."""
    found = KEPT["kills"]
    assert found["rounds_count"] >= 200
    assert set(found["moments"]) == {"start", "work", "stop"}
    assert found["lost_max_s"] <= kills.MOST_LOST_NS / 1e9
    assert {name for name in found["windows_in_clients"] if name.startswith("open")} == {"open: unproven"}


def test_thousand_damaged_stores_were_usable() -> None:
    assert KEPT["damage"]["stores_count"] >= 1000


def test_thousand_windows_at_once_were_judged() -> None:
    found = KEPT["windows at-once"]
    assert found["windows_count"] >= 1000
    assert found["without_findings_count"] == 0
    assert found["after"]["descriptors_count"] <= found["before"]["descriptors_count"] + 4


def test_hundred_thousand_windows_left_no_growth() -> None:
    """A hundred thousand windows in sequence were stored, and left only their records."""
    assert KEPT["windows in-sequence"]["windows_count"] >= 100_000
    crowd.check_sequence(KEPT["windows in-sequence"])


def test_simulated_day_did_not_grow() -> None:
    found = KEPT["day"]
    assert (found["simulated_hours"], found["gpus_count"]) == (24, 8)
    for of in ("memory_bytes", "judge_memory_bytes"):
        assert found[f"{of}_growth_ratio"] <= day.MOST_GROWN_RATIO
    assert found["segments_max_bytes"] <= found["budget_bytes"] + found["segment_bytes"]
    assert sum(found["windows"].values()) == 1440
