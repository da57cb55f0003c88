"""Tests of the judge on the essays' recorded windows from a real H200."""

from __future__ import annotations

import pytest

from annotate.budget import Number
from annotate.verdict import Status, Verdict
from tests.hardware.essays_page import judged


def _of(experiment: str) -> dict[str, Verdict]:
    return {row["condition"]: verdict for row, verdict in judged() if row["experiment"] == experiment}


def test_no_experiment_has_the_finding_no_work() -> None:
    """No verdict has the finding ``no-work``, although some windows have one-block kernels for 2 % of the time."""
    accused = [row["condition"] for row, verdict in judged() if any(each.rule == "no-work" for each in verdict.hazards)]
    assert not accused


@pytest.mark.parametrize("condition", ["GPU busy, processors free", "GPU busy, processors busy"])
def test_neighbour_in_the_contention_essay_is_rejected(condition: str) -> None:
    verdict = _of("contention")[condition]
    assert verdict.status is Status.REJECTED
    assert "contention-process" in {each.rule for each in verdict.causes}


def test_sleeps_between_products_are_never_valid() -> None:
    """Products with sleeps between them, which read 15 % less time without the cap, are never valid."""
    by_condition = _of("power cap")
    assert by_condition["GEMM 16384 back to back"].status is Status.VALID
    assert all(verdict.status is not Status.VALID for condition, verdict in by_condition.items() if "sleeps" in condition)


def test_trials_from_idle_agree_at_one_clock() -> None:
    """The three medians at one clock agree within 0.2 %."""
    values = [
        number.value
        for verdict in _of("trial counts").values()
        if verdict.budget and (number := verdict.budget.number(Number.MEDIAN_AT_CLOCK)) and number.value is not None
    ]
    assert len(values) == 3
    assert max(values) / min(values) < 1.002
