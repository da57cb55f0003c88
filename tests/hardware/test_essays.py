"""Tests of the judge on the essays' recorded windows from a real H200."""

from __future__ import annotations

import pytest

from annotate.budget import Number
from annotate.verdict import Status, Verdict
from tests.hardware.essays_page import judged


def _verdicts(experiment: str) -> dict[str, Verdict]:
    return {row["condition"]: verdict for row, verdict in judged() if row["experiment"] == experiment}


def test_no_experiment_has_the_finding_no_work() -> None:
    """No verdict has the finding ``no-work``, although every reading of utilisation in five of the windows is 0."""
    accused = [row["condition"] for row, verdict in judged() if any(each.rule == "no-work" for each in verdict.hazards)]
    assert not accused


@pytest.mark.parametrize("condition", ["GPU busy, processors free", "GPU busy, processors busy"])
def test_window_with_a_neighbour_is_rejected(condition: str) -> None:
    verdict = _verdicts("contention")[condition]
    assert verdict.status is Status.REJECTED
    assert "contention-process" in {each.rule for each in verdict.causes}


def test_windows_with_sleeps_are_never_valid() -> None:
    """Windows of products with sleeps between them are never valid: the sleeps avoid the power cap and shorten the times."""
    by_condition = _verdicts("power cap")
    assert by_condition["GEMM 16384 back to back"].status is Status.VALID
    assert all(verdict.status is not Status.VALID for condition, verdict in by_condition.items() if "sleeps" in condition)


def test_trials_from_idle_agree_at_one_clock() -> None:
    """The three medians at 1500 MHz agree within 0.2 %."""
    values = [
        number.value or 0.0
        for verdict in _verdicts("trial counts").values()
        if verdict.budget and (number := verdict.budget.number(Number.MEDIAN_AT_CLOCK)) and number.clock_mhz == 1500.0
    ]
    assert len(values) == 3
    assert max(values) / min(values) < 1.002
