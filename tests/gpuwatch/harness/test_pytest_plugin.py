"""Tests of the pytest plug-in: real runs with both supported versions of pytest-benchmark, and single functions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import gpuwatch
from gpuwatch.config.settings import Settings
from gpuwatch.harness import pytest_plugin, pytest_rounds, session
from gpuwatch.harness.harness_window import HarnessWindow
from pytest_gpuwatch import UnwatchedWindow
from tests.gpuwatch.harness.real_packages import ROOT, environment, evidence_of, folder, run_python
from tests.gpuwatch.live import judged_run

SUITE = Path(__file__).parent / "suites" / "watched_suite.py"
QUICK = ("--benchmark-max-time=0.02", "--benchmark-min-rounds=5")
STATUSES = {"valid", "unproven", "flagged", "rejected"}


def pytest_run(settings: Settings, tmp_path: Path, *options: str, paths: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run pytest on a copy of the suite in another folder, without this repository's settings."""
    shutil.copy(SUITE, tmp_path)
    given = environment(settings, *paths, str(ROOT), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    plugins = ("-p", "pytest_gpuwatch", "-p", "no:cacheprovider")
    return run_python("-m", "pytest", "-q", *plugins, *options, SUITE.name, given=given, cwd=tmp_path)


def benchmark_run(settings: Settings, tmp_path: Path, package: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with pytest-benchmark, without the description of the CPU, which takes a second."""
    (tmp_path / "conftest.py").write_text("def pytest_benchmark_generate_machine_info():\n    return {}\n")
    return pytest_run(settings, tmp_path, "-p", "pytest_benchmark.plugin", *QUICK, *options, paths=(folder(package),))


def test_pytest_benchmark_5_3_1_is_watched(copying: Settings, tmp_path: Path) -> None:
    timer = "--benchmark-timer=gpuwatch.harness.synchronized_timer.synchronized"
    warmed = ("--benchmark-warmup=on", "--benchmark-warmup-iterations=3")
    ended = benchmark_run(copying, tmp_path, "pytest-benchmark", "--gpuwatch", "--benchmark-json=b.json", timer, *warmed)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = read_benchmarks(tmp_path)
    check_json_has_run_and_status(found)
    check_warm_up_rounds_are_separate(found, copying)
    check_marker_states_claim_and_tolerance(found, copying)
    check_machine_info_has_the_gpus(tmp_path)
    check_summary_is_at_the_end(ended)


def read_benchmarks(place: Path) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads((place / "b.json").read_text())["benchmarks"]}


def check_json_has_run_and_status(found: dict[str, Any]) -> None:
    attached = [each["extra_info"]["gpuwatch"] for each in found.values()]
    assert len({each["run"] for each in attached}) == 2
    assert {each["status"] for each in attached} <= STATUSES


def check_warm_up_rounds_are_separate(found: dict[str, Any], copying: Settings) -> None:
    """Check that the stored times are the rounds that pytest-benchmark counted, and earlier rounds are warm-up."""
    for name, warmed in (("test_pedantic", 5), ("test_benchmark", None)):
        attached = found[name]["extra_info"]["gpuwatch"]
        stored = evidence_of(copying, attached["run"])
        assert stored.timings is not None
        assert stored.other_work is not None
        assert len(stored.timings.took_s) == attached["rounds_count"] == found[name]["stats"]["rounds"]
        assert stored.timings.calls_count == found[name]["stats"]["iterations"]
        assert stored.timings.took_s.tolist() == pytest.approx(found[name]["stats"]["data"])
        assert stored.other_work.kinds == ("warm-up",) * attached["warmup_rounds_count"]
        assert attached["warmup_rounds_count"] == warmed if warmed is not None else attached["warmup_rounds_count"] >= 1
        assert stored.declared["timer"] == "host"


def check_machine_info_has_the_gpus(place: Path) -> None:
    [gpu] = json.loads((place / "b.json").read_text())["machine_info"]["gpuwatch"]
    assert (gpu["name"], gpu["power_limit_w"], gpu["simulated"]) == ("SIMULATED NVIDIA H200", 700.0, True)
    assert not any("clock" in name or "temperature" in name for name in gpu), "no values that vary from run to run"


def check_marker_states_claim_and_tolerance(found: dict[str, Any], copying: Settings) -> None:
    attached = found["test_pedantic"]["extra_info"]["gpuwatch"]
    judged = judged_run(copying.state, attached["run"])
    assert judged.claim == "burst"
    assert judged.policy["tolerance_ratio"] == 0.05


def check_summary_is_at_the_end(ended: subprocess.CompletedProcess[str]) -> None:
    out = ended.stdout
    assert "= gpuwatch =" in out
    assert "SIMULATED pytest-benchmark: 2 windows: " in out
    assert "SIMULATED pytest: 2 windows: " in out
    assert "gpuwatch" not in ended.stderr, "the end of the process does not repeat the summary"


def test_pytest_benchmark_5_2_3_fails_tests_and_writes_junit(copying: Settings, tmp_path: Path) -> None:
    """With 5.2.3, under pytest 8, every window that is not valid fails its test, if ``--gpuwatch-fail-on`` names its status."""
    options = ("--gpuwatch-fail-on=unproven,flagged,rejected", "--benchmark-json=b.json", "--junitxml=j.xml")
    ended = benchmark_run(copying, tmp_path, "pytest-benchmark-older", *options)
    assert ended.returncode == 1, ended.stdout
    assert "4 failed, 1 passed" in ended.stdout
    assert "gpuwatch: mine: " in ended.stdout
    failing = STATUSES - {"valid"}
    assert {each["extra_info"]["gpuwatch"]["status"] for each in read_benchmarks(tmp_path).values()} <= failing
    cases = ET.parse(tmp_path / "j.xml").getroot().iter("testcase")
    found = {case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")} for case in cases}
    assert [name for name, properties in found.items() if not properties] == ["test_unwatched"]
    assert {properties["gpuwatch_status"] for properties in found.values() if properties} <= failing


def test_plugin_is_inert_without_its_option(copying: Settings, tmp_path: Path) -> None:
    """Without the option, tests pass as usual, and results and summary contain no verdicts."""
    ended = benchmark_run(copying, tmp_path, "pytest-benchmark", "--benchmark-json=b.json", "--strict-markers")
    assert ended.returncode == 0, ended.stdout
    assert "5 passed" in ended.stdout
    assert "= gpuwatch =" not in ended.stdout
    assert all(each["extra_info"] == {} for each in read_benchmarks(tmp_path).values())


def test_plugin_states_that_no_test_was_judged(copying: Settings, tmp_path: Path) -> None:
    ended = benchmark_run(copying, tmp_path, "pytest-benchmark", "--gpuwatch", "-k", "unwatched")
    assert ended.returncode == 0, ended.stdout
    assert "no test was judged: mark one with @pytest.mark.gpuwatch" in ended.stdout


def test_plugin_reports_windows_of_xdist_workers(copying: Settings, tmp_path: Path) -> None:
    """Under xdist the summary reports that pytest-benchmark is disabled, and lists the workers' windows."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpuwatch = true\n")
    options = ("-p", "xdist", "-n1", "-k", "not unwatched", "-c", "pytest.ini")
    ended = benchmark_run(copying, tmp_path, "pytest-benchmark", *options)
    assert ended.returncode == 0, ended.stdout
    assert "watched_suite.py::test_window: " in ended.stdout
    assert "pytest-benchmark is disabled" in ended.stdout + ended.stderr


def test_plugin_rejects_an_unknown_status() -> None:
    config: Any = SimpleNamespace(getoption=lambda *_: "slow", getini=lambda _: "")
    with pytest.raises(
        pytest.UsageError, match="--gpuwatch-fail-on: expected some of unproven, flagged, rejected, found 'slow'"
    ):
        pytest_plugin.register(config)


def test_unknown_pytest_benchmark_is_unproven(fresh: session.HarnessSession) -> None:
    """A fixture without the expected methods closes the window, and the result is unproven with the reason."""
    benchmark = SimpleNamespace(extra_info={}, _make_runner=lambda function: None)
    window = session.open_window(pytest_rounds.FACE, "unknown")
    assert isinstance(window, HarnessWindow)
    pytest_rounds.BenchmarkRounds(benchmark, window)
    assert benchmark.extra_info == {"gpuwatch": {"run": None, "status": "unproven", "why": pytest_rounds.UNKNOWN}}
    assert not window.is_open
    assert session.summarize(fresh) == [f"pytest-benchmark: {pytest_rounds.UNKNOWN}"]


def test_plugin_windows_beyond_the_limit_are_unwatched(fresh: session.HarnessSession) -> None:
    """After 500 windows a test gets an unwatched window."""
    fresh.windows = [HarnessWindow("a harness", "work", gpuwatch.Policy())] * 500
    item: Any = SimpleNamespace(nodeid="test_x", get_closest_marker=lambda name: None)
    with watched().window_maker(item)() as w:
        assert list(w.iterations(3)) == [0, 1, 2]
    assert isinstance(w, UnwatchedWindow)


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"claims": "burst"}, "expects claim, tolerance, precision, reference_clock, accept, limits by name, found claims"),
        ({"claim": "bursty"}, "burst"),
        ({"tolerance": 7.0}, "tolerance"),
    ],
)
def test_plugin_rejects_an_invalid_marker(kwargs: dict[str, Any], expected: str) -> None:
    item: Any = SimpleNamespace(nodeid="test_x", get_closest_marker=lambda name: pytest.mark.gpuwatch(**kwargs).mark)
    with pytest.raises(pytest.UsageError, match=expected):
        pytest_plugin.policy_of(item)
    item.user_properties = []
    with pytest.raises(pytest.fail.Exception, match=expected) as caught:
        watched().pytest_runtest_setup(item)
    assert (caught.value.pytrace, "\n" in str(caught.value)) == (False, False)


def watched() -> pytest_plugin.GpuwatchWindows:
    return pytest_plugin.GpuwatchWindows(SimpleNamespace(getoption=lambda *_: None), frozenset())  # type: ignore[arg-type]


def test_plugin_judges_a_rerun_test_by_its_last_try(fresh: session.HarnessSession) -> None:
    """With pytest-rerunfailures, only the windows of the last try belong to the test."""
    windows = watched()
    item: Any = SimpleNamespace(
        nodeid="test_x", get_closest_marker=lambda name: None, user_properties=[("gpuwatch_status", "flagged"), ("own", 1)]
    )
    for attempt in ("first", "second"):
        windows.pytest_runtest_setup(item)
        windows.window_maker(item)(attempt)
    assert [each.label for each in windows._windows["test_x"]] == ["second"]
    assert item.user_properties == [("own", 1)]
    assert len(fresh.windows) == 2


def test_plugin_module_imports_no_package() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import sys, pytest_gpuwatch; print([each for each in sys.modules if each.startswith(('gpuwatch', 'annotate', 'numpy'))])"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert ended.stdout.strip() == "[]"
