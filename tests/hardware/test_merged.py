"""Tests of the merge of runs on real GPUs: each row once, and tables of the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.hardware import merged

CLEAN = {"kind": "clean", "name": "copy", "recorded": True, "status_due": "valid", "date": "2026-11-21", "hazards": []}


def row(status: str = "valid", **facts: Any) -> dict[str, Any]:
    return {**CLEAN, "status": status, **facts}


def test_run_is_appended_once(tmp_path: Path) -> None:
    for name, status in (("one", "valid"), ("two", "flagged")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "verdicts-0.jsonl").write_text(json.dumps(row(status)) + "\n")
    for name in ("one", "two", "one", "two"):
        merged.append(tmp_path / name, tmp_path)
    assert [each["status"] for each in merged.rows(tmp_path / merged.VERDICTS)] == ["valid", "flagged"]


def test_hazard_is_named_only_by_an_expected_rule() -> None:
    injected = {"kind": "injected", "rules": ["clock-drift"], "status_due": "flagged|rejected"}
    assert merged.due(row("flagged", **injected | {"hazards": [["clock-drift", "flag"]]}))
    assert not merged.due(row("flagged", **injected | {"hazards": [["outliers", "flag"]]}))
    assert merged.caught(row("flagged", **injected))
    assert not merged.caught(row("valid", **injected))


def test_tables_count_the_rows(tmp_path: Path) -> None:
    rows = [row() for _ in range(298)] + [row("flagged", hazards=[["outliers", "flag"]]), row(name="gemm", recorded=False)]
    rows += [row("rejected", kind="injected", name="neighbour", rules=["contention-process"], status_due="rejected",
                 hazards=[["contention-process", "reject"]])]  # fmt: skip
    (tmp_path / merged.VERDICTS).write_text("".join(json.dumps(each) + "\n" for each in rows))
    page = "\n".join(merged.page(tmp_path))
    assert "300 clean and 1 injected windows" in page
    assert "| clean, not `valid` | 1 of 300 (0.0% to 1.8%) |" in page
    assert "| neighbour | yes | 1 | 1 | rejected 1 | contention-process 1 |" in page
    assert "| outliers | 1 of 300 (0.0% to 1.8%) |" in page
