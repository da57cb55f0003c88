"""Tests of the whole command on a simulated GPU: output, files, gates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gpuwatch.cli.conftest import Ended, Gpuwatch
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.diff.conftest import WriteSource

SLOW = "__global__ void k(const float* x, float* y) { int i = threadIdx.x; y[i] = sqrtf(sqrtf(sqrtf(x[i]) + 1) / 3) + 1; }\n"
FAST = "__global__ void k(const float* x, float* y) { int i = threadIdx.x; y[i] = x[i] + 1; }\n"


@pytest.fixture
def run(gpuwatch: Gpuwatch, source: WriteSource) -> Gpuwatch:
    source("slow.cu", SLOW)
    source("fast.cu", FAST)

    def call(*arguments: str) -> Ended:
        return gpuwatch("diff", *arguments, "--source", "simulated:h200")

    return call


def test_simulation_shows_the_whole_screen_under_its_banner(run: Gpuwatch, tmp_path: Path) -> None:
    ended = run("slow.cu", "fast.cu", "--json", str(tmp_path / "found.json"), "-o", str(tmp_path / "found.html"))
    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert lines[0].startswith("SIMULATED: this GPU does not exist, and no kernel ran")
    assert lines[1].startswith("FASTER ")
    for words in ("why:", "1. ", "roofline", "speed of light", "registers per thread", "counters: GPM, simulated"):
        assert words in ended.out
    assert len(lines) < 50
    data = json.loads((tmp_path / "found.json").read_text())
    check(data, "urn:gpuwatch:diff:1")
    assert data["timed"][0]["simulated"]
    assert 'class="banner"' in (tmp_path / "found.html").read_text()


@pytest.mark.parametrize(
    ("sides", "gate", "code"),
    [
        (("slow.cu", "fast.cu"), "slower,incomparable", 0),
        (("fast.cu", "slow.cu"), "slower,incomparable", 1),
        (("fast.cu", "fast.cu"), "same", 1),
    ],
)
def test_gate_fails_for_the_named_decisions(run: Gpuwatch, sides: tuple[str, str], gate: str, code: int) -> None:
    assert run(*sides, "--fail-on", gate).code == code


def test_equal_simulated_pair_is_same(run: Gpuwatch) -> None:
    found = run("fast.cu", "fast.cu").out
    assert "SAME 1.000" in found
    assert "there is no difference to explain" in found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fail-on", "worse"), "--fail-on: expected some of faster, slower, same, inconclusive, incomparable, found 'worse'"),
        (("-o", "/nonexistent/x.html"), "expected a file in a writable folder"),
        (("--source", "simulated:nothing"), "no scene 'nothing'"),
    ],
)
def test_impossible_diff_is_refused_in_one_line(
    gpuwatch: Gpuwatch, source: WriteSource, arguments: tuple[str, ...], words: str
) -> None:
    source("a.cu", FAST)
    ended = gpuwatch("diff", "a.cu", "a.cu", *arguments)
    assert ended.code == 2
    assert words in ended.err
    assert len(ended.err.splitlines()) == 1


def test_missing_required_counters_end_the_command(
    gpuwatch: Gpuwatch, source: WriteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(source("a.cu", FAST).parent))
    ended = gpuwatch("diff", "a.cu", "a.cu", "--counters", "ncu")
    assert ended.code == 2
    assert ended.err == (
        "gpuwatch: --counters ncu: ncu is not on PATH; an administrator installs it with: sudo apt-get install nsight-compute\n"
    )


def test_untimed_pair_passes_the_gate(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("a.cu", FAST)
    ended = gpuwatch("diff", "a.cu", "a.cu", "--fail-on", "slower,incomparable")
    assert (ended.code, "not timed" in ended.out) == (0, True)
