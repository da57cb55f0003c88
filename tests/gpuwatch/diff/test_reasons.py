"""Tests of the differences that explain a ratio: which differences are named, and in which order."""

from __future__ import annotations

import pytest

from gpuwatch.diff.kernel_counters import Counters
from gpuwatch.diff.reasons import RatioReason, explain, why_none
from gpuwatch.diff.static_comparison import StaticComparison
from tests.gpuwatch.diff.timed_builders import counters, side, static, timed

NONE = Counters("none", "none")
TILED = static("1 LDG.32, 1 STG.32, 6 IMAD", "4 LDG.32, 4 STG.32, 4 LDS.32, 4 STS.32, 1 BAR, 19 IMAD")


def explained(code: StaticComparison, found: Counters = NONE, decision: str = "FASTER") -> list[str]:
    return [str(each) for each in explain(timed(decision), code, found)]


def test_tiled_transpose_has_sector_and_memory_reasons() -> None:
    found = explained(
        TILED, counters(store_efficiency_ratio=(0.125, 1.0), load_efficiency_ratio=(1.0, 1.0), dram_bytes=(9e8, 5e8))
    )
    assert found == [
        "bytes used of each 32-byte sector stored: A 4.0, B 32.0 (ncu)",
        "only B goes through shared memory (SASS)",
        "DRAM traffic: A 900 MB, B 500 MB (ncu)",
    ]


def test_tiled_transpose_without_counters_still_has_a_reason() -> None:
    assert explained(TILED) == ["only B goes through shared memory (SASS)"]


def test_bank_conflicts_explain_a_slower_scan() -> None:
    """Bank conflicts come first for Blelloch's scan, which has three million instead of none."""
    code = static("17 LDS.32, 9 STS.32, 9 BAR", "29 LDS.32, 24 STS.32, 17 BAR")
    found = counters(
        bank_conflicts_count=(0, 3_067_000), instructions_count=(9e6, 12e6), stall_sync_ratio=(0.284, 0.384),
        stall_memory_ratio=(0.403, 0.104), stall_compute_ratio=(0.014, 0.154),
    )  # fmt: skip
    first, *rest = explain(timed("SLOWER", 0.69), code, found)
    assert first.says == "bank conflicts: A 0, B 3 067 000"
    assert not any("memory:" in each.says for each in rest)  # fewer stalls for memory make nothing slower


def test_few_conflicts_among_many_instructions_explain_little() -> None:
    found = counters(bank_conflicts_count=(0, 1_000), instructions_count=(9e6, 12e6))
    assert explain(timed("SLOWER", 0.69), static(), found)[0].cause == "instructions_count"


@pytest.mark.parametrize(
    ("code", "decision", "words"),
    [
        (
            static(side("9 FFMA"), side("9 FFMA", spills=612)),
            "SLOWER",
            "bytes of registers spilled to memory: A 0, B 1224 (ptxas)",
        ),
        (
            static(side("9 FFMA", warps=16, limited_by="registers"), side("9 FFMA")),
            "FASTER",
            "theoretical occupancy: A 25% (limited by registers), B 100% (limited by warps) (occupancy)",
        ),
        (static("1 LDG.32@1", "9 LDG.32@1, 1 LDG.128"), "FASTER", "most bits of one global load or store: A 32, B 128 (SASS)"),
        (static("9 FFMA@1", "1 HMMA@1"), "FASTER", "only B uses tensor cores (SASS)"),
        (static("2 RED@1", "1 RED"), "FASTER", "global atomics (a loop counts 32 times): A 64, B 1 (SASS)"),
    ],
)
def test_kinds_of_differences_are_named(code: StaticComparison, decision: str, words: str) -> None:
    assert explained(code, decision=decision)[0] == words


@pytest.mark.parametrize("decision", ["SAME", "INCONCLUSIVE", "INCOMPARABLE"])
def test_reasons_need_a_faster_side(decision: str) -> None:
    assert explained(TILED, decision=decision) == []


def test_missing_reasons_have_a_sentence() -> None:
    assert why_none(timed("SAME", 1.0)) == "there is no difference to explain"
    assert explained(static()) == []
    assert why_none(timed("FASTER")) == "none of the observed differences explains the ratio"
    assert why_none(timed("INCOMPARABLE", None)) == "there is no ratio to explain"


@pytest.mark.parametrize("decision", ["FASTER", "SLOWER"])
def test_reasons_favour_the_faster_side(decision: str) -> None:
    """With differences in both directions, only differences in favour of the winner are named."""
    found = counters(
        dram_bytes=(9e8, 5e8), l2_hit_ratio=(0.9, 0.1), stall_sync_ratio=(0.1, 0.5), sm_throughput_ratio=(0.1, 0.8),
        tensor_activity_ratio=(0.5, 0.0), bank_conflicts_count=(9e6, 0), occupancy_ratio=(0.9, 0.3),
    )  # fmt: skip
    code = static(side("9 LDG.32@2, 1 BAR", spills=40), side("3 LDG.128, 8 BAR@1, 2 HMMA", warps=32))
    reasons = explain(timed(decision), code, found)
    assert len(reasons) == 3
    assert {each.favours for each in reasons} == {"b" if decision == "FASTER" else "a"}
    assert [each.weight for each in reasons] == sorted((each.weight for each in reasons), reverse=True)


def test_difference_within_its_interval_is_marked_and_comes_last() -> None:
    noisy = counters("GPM", dram_activity_ratio=((0.5, 0.9, 0.2), (0.9, 0.6, 0.8)), l2_hit_ratio=(0.5, 0.7))
    found = explain(timed(), static(), noisy)
    assert [(each.cause, each.is_uncertain) for each in found] == [("l2_hit_ratio", False), ("dram_activity_ratio", True)]
    assert str(found[1]).endswith("(GPM) ?")


def test_reasons_name_a_cause_once() -> None:
    """Measured and theoretical occupancy count as one difference."""
    code = static(side("9 FFMA", warps=16), side("9 FFMA"))
    reasons: tuple[RatioReason, ...] = explain(timed(), code, counters(occupancy_ratio=(0.2, 0.9)))
    assert [each.cause for each in reasons] == ["occupancy"]
