"""Tests of windows around Triton's do_bench and autotuner."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gpuwatch
from gpuwatch.config.settings import Settings
from gpuwatch.harness import session, triton_testing
from tests.gpuwatch.harness.real_packages import environment, evidence_of, folder, read_json, run

Windows = dict[str, list[dict[str, Any]]]  # by harness
PROGRAM = "tests/gpuwatch/harness/triton_program.py"


def test_real_triton_is_watched(copying: Settings) -> None:
    """One run of ``triton_program.py`` serves all checks, because Triton takes seconds to import."""
    given = environment(copying, folder("triton"), TRITON_INTERPRET="1", MPLBACKEND="agg")
    ran = run(sys.executable, "-m", "gpuwatch", "run", "--auto", "--", sys.executable, PROGRAM, given=given)
    found = read_json(ran)
    windows: Windows = {}
    for each in found["windows"]:
        windows.setdefault(each["face"], []).append(each)
    check_numbers_are_tritons(found)
    check_failures_are_tritons(found)
    check_each_do_bench_has_a_window(windows)
    check_times_are_stored(windows, copying)
    check_autotuner_has_one_window_per_key(windows, found)
    check_summary_has_one_line_per_cause(ran.stderr)


def check_numbers_are_tritons(found: dict[str, Any]) -> None:
    """Check that every mode and the quantiles give the same numbers with and without a window."""
    assert set(found["modes"]) == {"min", "max", "mean", "median", "all"}
    for original, watched in [*found["modes"].values(), found["quantiles"], found["graph"]]:
        assert original == watched
    assert len(found["modes"]["all"][0]) > 50
    assert found["quantiles"][0] == [1.25, 1.125]


def check_failures_are_tritons(found: dict[str, Any]) -> None:
    assert found["wrong"] == ["AssertionError", "TypeError", "of the measured function"]
    assert found["is_restored"]


def check_each_do_bench_has_a_window(windows: Windows) -> None:
    found = windows["triton.testing.do_bench"]
    assert [each["label"] for each in found[:6]] == ["work"] * 6
    assert all(each["simulated"] and each["run"] for each in found)
    assert {each["status"] for each in found} <= {"valid", "unproven", "flagged", "rejected"}


def check_times_are_stored(windows: Windows, copying: Settings) -> None:
    """Check that the stored times are the work's five durations, in seconds, and that a graph's entry has 16 calls."""
    stored = evidence_of(copying, str(windows["triton.testing.do_bench"][4]["run"]))
    graph = evidence_of(copying, str(windows["triton.testing.do_bench_cudagraph"][0]["run"]))
    assert stored.timings is not None
    assert sorted({round(each * 1e3, 6) for each in stored.timings.took_s.tolist()}) == [1.0, 1.125, 1.25, 1.375, 1.5]
    assert stored.declared["cache"] == "cold"
    assert graph.timings is not None
    assert graph.timings.calls_count == 16, "20 ms contain 16 calls of 1.25 ms"


def check_autotuner_has_one_window_per_key(windows: Windows, found: dict[str, Any]) -> None:
    """Check that the three trials of each of two keys count in one window per key."""
    tuned = windows["triton.autotune"]
    assert [(each["label"], each["trials_count"]) for each in tuned] == [("autotune scale", 3)] * 2
    assert "BLOCK" in found["best"]
    assert len(windows["triton.testing.do_bench"]) == 6


def check_summary_has_one_line_per_cause(stderr: str) -> None:
    lines = [line for line in stderr.splitlines() if line.startswith("gpuwatch:")]
    assert any("2 × triton.autotune: autotune scale: 3 trials in one window" in line for line in lines)
    causes = [found[1] for line in lines if (found := re.match(r"gpuwatch:   \d of 6  ([\w-]+):", line))]
    assert len(causes) == len(set(causes)) > 0, "one line per cause for all windows"


def fake_testing(do_bench: Any) -> ModuleType:
    testing = ModuleType("triton.testing")
    vars(testing).update(do_bench=do_bench, _summarize_statistics=lambda times, quantiles, mode: sum(times))
    return testing


def test_do_bench_refuses_a_coroutine_under_its_name() -> None:
    async def step() -> None: ...

    with pytest.raises(gpuwatch.UsageError, match=r"^do_bench: expected a function that does its work when it is called"):
        gpuwatch.do_bench(step)
    with pytest.raises(gpuwatch.UsageError, match=r"^do_bench: expected a function, found 3; give the function itself$"):
        gpuwatch.do_bench(3)  # type: ignore[arg-type] # the mistake


def test_unknown_do_bench_is_unproven(fresh: session.HarnessSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A do_bench with another number of flushes keeps its result, and the verdict is unproven with the reason."""

    def do_bench(
        fn: Any, warmup: int = 25, rep: int = 100, grad_to_none: Any = None, quantiles: Any = None, return_mode: str = "mean"
    ) -> list[float]:
        for _ in range(9):
            driver.clear_cache(b"")
            fn()
        return [1.0, 2.0]

    driver = SimpleNamespace(clear_cache=len, get_device_interface=lambda: None)
    holder = ModuleType("triton.runtime.driver")
    vars(holder).update(driver=SimpleNamespace(active=driver))
    monkeypatch.setitem(sys.modules, "triton.runtime.driver", holder)
    testing = fake_testing(do_bench)
    triton_testing.patch_testing(testing)
    assert testing.do_bench(lambda: None) == 3.0
    assert driver.clear_cache is len
    [(window, verdict)] = fresh.judge()
    assert (verdict.status.value, verdict.why) == ("unproven", triton_testing.UNKNOWN)
    assert window.attached["status"] == "unproven"


def test_do_bench_with_other_parameters_stays_unpatched() -> None:
    def do_bench(fn: Any, rep: int = 100) -> None: ...

    testing = fake_testing(do_bench)
    triton_testing.patch_testing(testing)
    assert testing.do_bench is do_bench
