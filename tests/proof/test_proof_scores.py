"""Scores of judges with made-up answers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from annotate.evidence import Evidence
from tests.proof.disturbances import NOTHING, family_name
from tests.proof.pairs import NUMBERS, length_s, pair
from tests.proof.scores import (
    Answer,
    Row,
    Share,
    coverage,
    coverage_by_family,
    naming,
    quantile,
    rows,
    sharpness,
    status_errors,
)


def row(
    deviation: float = 0.0,
    *,
    bounds: Mapping[str, float] | None = None,
    repeatability: float = 0.0,
    status: str = "valid",
    family: str = "host-stall",
    named: frozenset[str] = frozenset(),
    seed: int = 0,
    length: float = 4.0,
) -> Row:
    """Return a row with this deviation of throughput and, by default, a bound of 1 %."""
    return Row(
        seed=seed, family=family, clean=family == NOTHING, workload="gemm", variant="plain", length_s=length,
        truth={**dict.fromkeys(NUMBERS, 0.0), "throughput": deviation},
        answer=Answer(
            bounds={"throughput": 0.01} if bounds is None else bounds, repeatability={"throughput": repeatability},
            status=status, named=named,
        ),
    )  # fmt: skip


def test_coverage_counts_bound_plus_repeatability() -> None:
    found = coverage([row(-0.012), row(-0.012, repeatability=0.003), row(0.01)], "throughput")
    assert (found.count, found.total) == (2, 3)
    assert found.ratio == pytest.approx(2 / 3)


def test_coverage_separates_missing_answers() -> None:
    """A number without a bound counts as unanswered; an infinite bound counts as covered."""
    silent = [row(0.5, bounds={}), row(0.5, bounds={"throughput": math.nan})]
    found = coverage([*silent, row(0.5, bounds={"throughput": math.inf})], "throughput")
    assert (found.count, found.total, found.unanswered, found.unbounded) == (1, 1, 2, 1)
    assert coverage(silent, "throughput").ratio is None


def test_coverage_by_family_separates_families() -> None:
    found = coverage_by_family([row(0.5), row(0.0), row(0.5, family="thermal")], "throughput")
    assert {family: (share.count, share.total) for family, share in found.items()} == {"host-stall": (1, 2), "thermal": (0, 1)}


@pytest.mark.parametrize(
    ("count", "total", "low", "high"), [(0, 13, 0.0, 0.2471), (23, 23, 0.8518, 1.0), (5, 10, 0.1871, 0.8129)]
)
def test_share_interval_is_clopper_pearson(count: int, total: int, low: float, high: float) -> None:
    assert Share(count=count, total=total).interval == pytest.approx((low, high), abs=1e-4)


def test_share_meets_a_target_with_its_unfavourable_end() -> None:
    """23 of 23 does not prove 95 %, and 100 of 100 does; 0 of 100 does not prove 2 %, and 0 of 200 does."""
    assert not Share(count=23, total=23).is_at_least(0.95)
    assert Share(count=100, total=100).is_at_least(0.95)
    assert not Share(count=0, total=100).is_at_most(0.02)
    assert Share(count=0, total=200).is_at_most(0.02)
    assert Share(count=0, total=0).interval == (0.0, 1.0)


def test_sharpness_counts_only_long_clean_windows() -> None:
    of = [row(bounds={"throughput": 0.001 * i}, family=NOTHING) for i in range(101)]
    of += [row(bounds={"throughput": 9.0}), row(bounds={"throughput": 9.0}, family=NOTHING, length=2.9)]
    found = sharpness(of, "throughput", ratio=0.5)
    assert found is not None
    assert found.count == 101
    assert found.value == pytest.approx(0.05)
    assert found.low < 0.05 < found.high
    assert sharpness(of, "mean", ratio=0.5) is None


def test_quantile_of_a_small_sample_has_no_upper_end() -> None:
    """Ten values do not bound the 95th percentile from above, so the upper end is infinite."""
    found = quantile([float(i) for i in range(10)], 0.95)
    assert found is not None
    assert (found.value, found.high) == (9.0, math.inf)


def test_status_errors_count_both_errors() -> None:
    of = [
        row(family=NOTHING), row(family=NOTHING, status="flagged"),
        row(-0.02), row(-0.02, status="rejected"), row(-0.02, repeatability=0.011), row(0.009),
    ]  # fmt: skip
    found = status_errors(of)
    assert (found.clean_not_valid.count, found.clean_not_valid.total) == (1, 2)
    assert (found.off_called_valid.count, found.off_called_valid.total) == (1, 2)


def test_throughput_decides_for_a_window_without_bounds() -> None:
    assert status_errors([row(-0.02, bounds={})]).off_called_valid.count == 1


def test_naming_separates_by_catch() -> None:
    of = [row(named=frozenset({"a"})), row(named=frozenset({"b"})), row(named=frozenset({"a", "b"})), row()]
    found = naming(of, {"host-stall": frozenset({"a"})})["host-stall"]
    assert (found.own.count, found.by_catch.count, found.own.total) == (2, 2, 4)
    assert found.names == {"a": 2, "b": 2}


def test_rows_judge_both_windows_of_a_pair() -> None:
    """The disturbed window has its true deviation, the clean window has zero; an undisturbed pair has one window."""
    asked: list[Evidence] = []

    def judge(evidence: Evidence) -> Answer:
        asked.append(evidence)
        return Answer(bounds={}, repeatability={}, status="unproven")

    short = [seed for seed in range(200) if length_s(seed) < 0.7]
    calm = next(seed for seed in short if family_name(seed) == NOTHING)
    stirred = next(seed for seed in short if family_name(seed) == "times-wrong")
    pairs = [pair(calm), pair(stirred)]
    found = list(rows(pairs, judge))
    assert [(each.family, each.clean) for each in found] == [(NOTHING, True), ("times-wrong", False), (NOTHING, True)]
    assert found[1].truth["mean"] == pairs[1].truth.mean != 0.0
    assert set(found[2].truth.values()) == {0.0}
    assert asked == [pairs[0].clean, pairs[1].disturbed, pairs[1].clean]
