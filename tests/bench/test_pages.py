"""Tests of the benchmarks' page and stored results, and of the benchmarks' arguments and command line."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import render, saved, targets
from tests.bench.saved import Saved


def test_benchmark_page_and_readme_are_fresh() -> None:
    assert render.main(["--check"]) == 0


@pytest.mark.parametrize("name", saved.names())
def test_benchmarks_run_without_arguments(name: str) -> None:
    """Every parameter of a benchmark's ``main`` has a default; the test does not run the benchmark."""
    parameters = inspect.signature(saved.main_of(name)).parameters.values()
    assert all(each.default is not inspect.Parameter.empty for each in parameters)


def test_stored_results_cover_every_target() -> None:
    """Stored results belong to existing benchmarks; all targets are measured, except effects on the work of a real GPU."""
    kept = saved.load()
    assert kept.keys() <= set(saved.names())
    found = targets.data(kept)
    not_measured = [each.what for each in targets.TARGETS if each.measure(found).met is None]
    assert [each for each in not_measured if not each.startswith("effect on")] == []  # those need a real GPU


def test_unknown_benchmark_gets_a_line_with_known_names() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "wndow"], cwd=render.ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected names of benchmarks (" in done.stderr
    assert done.stderr.endswith("found wndow\n")


def test_saved_run_replaces_the_previous_run(tmp_path: Path) -> None:
    """A stored run replaces the previous run, and results of removed benchmarks are dropped.

    A load above half the processors at the start marks the machine as shared.
    """
    path = tmp_path / "results.json"
    name, other = saved.names()[:2]
    first, second = (
        Saved(
            date="2026-11-21", took_s=1.0, machine=saved.machine(), processors_count=2, load_begin=load, load_end=0.0,
            versions=saved.versions(), table=f"at {load}", figures={"x_ms": load},
        )
        for load in (0.5, 1.5)
    )  # fmt: skip
    saved.save({name: first, other: first, "a benchmark that is no more": first}, path)
    saved.save({name: second}, path)
    assert saved.load(path) == {name: second, other: first}
    assert (first.is_shared, second.is_shared) == (False, True)


def test_unmeasured_target_is_neither_met_nor_missed() -> None:
    nothing = targets.Data({}, {}, [], [], {}, {})
    found = [each.measure(nothing) for each in targets.TARGETS if each.what != "verdicts on real GPUs"]
    assert {each.met for each in found} == {None}
    assert "Not measured yet" in render.page(nothing)


def test_rows_of_a_real_gpu_fill_the_effect_table() -> None:
    none = {
        "watcher": "none", "gpu": "NVIDIA H200", "date": "2026-11-21", "rounds_count": 40, "cpu_ratio": None, "memory_bytes": None,
        "gemm_s": 0.0027, "gemm_change_ratio": [0.0, 0.0, 0.0], "launch_s": [3e-6, 9e-6, 14e-6], "launch_change_s": [[0.0] * 3] * 3,
    }  # fmt: skip
    ours = none | {
        "watcher": "gpuwatch, 20 Hz", "cpu_ratio": 0.008, "gpus_count": 2, "cost_ratios": {"fast": 0.002, "slow": 0.004},
        "memory_bytes": 110e6, "gemm_change_ratio": [0.0006, 0.0, 0.001],
        "launch_change_s": [[0.0, -1e-7, 1e-7]] * 2 + [[0.5e-6, -1e-6, 2e-6]],
    }  # fmt: skip
    found = targets.Data({}, {str(row["watcher"]): row for row in (none, ours)}, [], [], {}, {})
    text = render.page(found)
    assert "| none | – | – | 2.700 ms | 3.00 | 9.00 | 14.00 |" in text
    assert "| gpuwatch, 20 Hz | 0.80% | 110 | +0.060% (+0.000% to +0.100%)" in text
    rows = {line.split(" | ")[0].strip("| "): line for line in targets.as_rows(found)}
    assert "0.40% (each of 2, H200, not scraped)" in rows["watching at 20 Hz, whole daemon, stored and scraped"]
    assert "**not met**" in rows["effect on a GEMM"]
    assert "nor from the target" in rows["effect on the p99.9 of kernel launches"]
    assert "met" not in rows["effect on the p99.9 of kernel launches"]
