"""Tests of gpuwatch judge on recordings and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpuwatch.cli.conftest import Gpuwatch

TRACES = Path(__file__).parents[2] / "traces"
CAPSULE = str(TRACES / "h200-side-stream.capsule")
ONE = str(TRACES.parents[1] / "docs" / "concepts" / "recordings" / "steady-gemm.capsule")  # one short window


@pytest.mark.parametrize("name", ["h200-side-stream.capsule", "h200-nvidia-smi.csv", "power_step.npz"])
def test_judge_of_a_recording_equals_audit_trace(gpuwatch: Gpuwatch, name: str) -> None:
    file = str(TRACES / name)
    assert gpuwatch("judge", file, "--json").data == gpuwatch("audit", "--trace", file, "--json").data


def test_judge_applies_policy_and_part_to_a_recording(gpuwatch: Gpuwatch) -> None:
    (verdict,) = gpuwatch("judge", CAPSULE, "--from", "0.1", "--to", "0.5s", "--claim", "burst", "--json").data["verdicts"]
    assert verdict["claim"] == "burst"
    assert verdict["end_ns"] - verdict["begin_ns"] == 400_000_000
    assert gpuwatch("judge", CAPSULE, "--fail-on", "unproven,flagged,rejected").code in (0, 10, 11, 12)


def test_judge_verifies_a_report_by_its_content(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """A report is recognised by its suffix or first tag, and gets the output of `verify`."""
    page = tmp_path / "run.html"
    assert gpuwatch("report", "--trace", ONE, "-o", str(page)).code == 0
    renamed = tmp_path / "attachment"
    renamed.write_bytes(page.read_bytes())
    for file in (page, renamed):
        assert gpuwatch("judge", str(file)).out == gpuwatch("verify", str(file)).out
    changed = page.read_text().replace("NVIDIA H200", "NVIDIA H100", 1)
    page.write_text(changed)
    assert gpuwatch("judge", str(page)).code == gpuwatch("verify", str(page)).code == 1


def test_judge_refuses_wrong_options_and_files(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<!doctype html>")
    for arguments, words in (
        ((CAPSULE, "--trust", "x.pub"), "--trust: expected a report"),
        ((str(tmp_path / "a.html"), "--claim", "burst"), "--claim: expected a log or recording"),
        ((str(tmp_path / "a.html"), "--gpu", "0"), "--gpu: expected a log or recording"),
        ((str(tmp_path / "none.csv"),), "expected a file, found nothing to read"),
        ((str(tmp_path / "a.html"),), "expected a gpuwatch report"),
        ((__file__,), "for another table: gpuwatch judge FILE --times COLUMN; other files: gpuwatch judge --help"),
    ):
        ended = gpuwatch("judge", *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert words in ended.err
