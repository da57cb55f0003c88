"""Tests of the judge on the essays' recorded windows from a real H200."""

from __future__ import annotations

import pytest

from annotate.budget import Number
from annotate.verdict import Status, Verdict
from tests.hardware.essays_page import judged


def _of(experiment: str) -> dict[str, Verdict]:
    return {row["condition"]: verdict for row, verdict in judged() if row["experiment"] == experiment}


def test_no_experiment_is_told_that_nothing_worked() -> None:
    """No verdict says that the GPU was idle, although some windows have one-block kernels for a fiftieth of the time."""
    accused = [row["condition"] for row, verdict in judged() if any(each.rule == "no-work" for each in verdict.hazards)]
    assert not accused


@pytest.mark.parametrize("condition", ["GPU busy, processors free", "GPU busy, processors busy"])
def test_a_neighbour_rejects_the_essay_s_contention(condition: str) -> None:
    verdict = _of("contention")[condition]
    assert verdict.status is Status.REJECTED
    assert "contention-process" in {each.rule for each in verdict.causes}


def test_sleeps_between_products_are_never_valid() -> None:
    """Products with sleeps between them, which read 15 % less time without the cap, are never valid."""
    by_condition = _of("power cap")
    assert by_condition["GEMM 16384 back to back"].status is Status.VALID
    assert all(verdict.status is not Status.VALID for condition, verdict in by_condition.items() if "sleeps" in condition)


def test_trials_from_idle_agree_at_one_clock() -> None:
    """Medians of ten, one thousand and thirty thousand calls differ by 4 % raw and agree at one clock."""
    values = [
        number.value
        for verdict in _of("trial counts").values()
        if verdict.budget and (number := verdict.budget.number(Number.MEDIAN_AT_CLOCK)) and number.value is not None
    ]
    assert len(values) == 3
    assert max(values) / min(values) < 1.002
