"""Tests of the pairs for other tools' decisions, and of their table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from annotate.judge import judge
from tests.hardware import other_decisions
from tests.hardware.other_decisions import DIFFERENCES, RESULTS, TOOLS, section, stretched
from tests.truth_windows import truth_windows


def test_stretched_window_keeps_its_books() -> None:
    """A window with 2 % longer times and pauses ends its last call in the window, and is judged as before."""
    whole = truth_windows()["stall-0.3-softmax"].before
    longer = stretched(whole, 0.02)
    assert whole.timings is not None
    assert longer.timings is not None
    assert float(np.median(longer.timings.took_s)) == pytest.approx(1.02 * float(np.median(whole.timings.took_s)), rel=1e-3)
    assert longer.timings.at_ns[-1] + longer.timings.took_s[-1] * 1e9 <= whole.window.end_ns
    assert judge(longer).status is judge(whole).status


def test_decisions_cover_every_pair_difference_and_tool() -> None:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    pairs = [work for work, _, _ in other_decisions.pairs()]
    assert [(row["pair"], row["work"], row["difference_ratio"]) for row in rows] == [
        (i, work, ratio) for i, work in enumerate(pairs) for ratio in DIFFERENCES
    ]
    assert all(row[tool] in ("same", "faster", "slower", "open") for row in rows for tool in TOOLS)


def test_stored_decisions_are_those_of_the_present_judge() -> None:
    """The stored decisions of gpuwatch are those of the present code, for every tenth pair with a difference of 1 %."""
    rows = {(row["pair"], row["difference_ratio"]): row["gpuwatch"] for row in json.loads(RESULTS.read_text(encoding="utf-8"))}
    for i, (_, a, b) in enumerate(other_decisions.pairs()):
        if i % 10 == 0:
            assert other_decisions.decide_here(a, stretched(b, 0.01)) == rows[i, 0.01]


def test_table_counts_decisions(tmp_path: Path) -> None:
    made = {"pair": 0, "work": "copy-1g", "gpuwatch": "slower", "nvbench": "open", "mann-whitney": "same"}
    (tmp_path / "rows.json").write_text(json.dumps([made | {"difference_ratio": ratio} for ratio in DIFFERENCES]))
    assert "| 0.5% | all others | 1 | 1 / 0 / 0 / 0 | 0 / 0 / 0 / 1 | 0 / 0 / 1 / 0 |" in list(section(tmp_path / "rows.json"))
    assert list(section(tmp_path / "none.json")) == []
