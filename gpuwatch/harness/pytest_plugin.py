"""The active part of the pytest plug-in: windows of tests and fixtures, verdicts in reports and in the summary."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from annotate.user_policy import Policy
from annotate.verdict import Status
from gpuwatch.client.window_arguments import check_policy
from gpuwatch.errors import UsageError
from gpuwatch.harness import session
from gpuwatch.harness.harness_window import HarnessWindow
from gpuwatch.harness.machine_facts import list_gpus
from gpuwatch.harness.pytest_rounds import FACE as BENCHMARK_FACE
from gpuwatch.harness.pytest_rounds import BenchmarkRounds
from gpuwatch.utf8 import found_words
from pytest_gpuwatch import UnwatchedWindow

FACE = "pytest"
_ARGUMENTS = ("claim", "tolerance", "precision", "reference_clock", "accept", "limits")
_FIXTURES = ("benchmark", "benchmark_weave")


def register(config: pytest.Config) -> None:
    """Register the plug-in, unless GPUWATCH=off.

    Raises pytest.UsageError: for an unknown status in --gpuwatch-fail-on, or in gpuwatch_fail_on of the configuration file.
    """
    named = config.getoption("--gpuwatch-fail-on") or config.getini("gpuwatch_fail_on")
    known = [status.value for status in Status if status is not Status.VALID]
    statuses = [each.strip().lower() for each in named.split(",") if each.strip()]
    for each in statuses:
        if each not in known:
            raise pytest.UsageError(f"--gpuwatch-fail-on: expected some of {', '.join(known)}, found {each!r}")
    if session.is_off():
        return
    config.pluginmanager.register(GpuwatchWindows(config, frozenset(map(Status, statuses))), "gpuwatch-windows")


class GpuwatchWindows:
    """The hooks of one run of pytest, which wait for verdicts after a test only if its report or outcome needs verdicts."""

    def __init__(self, config: pytest.Config, failing: frozenset[Status]) -> None:
        self._config = config
        self._failing = failing
        self._windows: dict[str, list[HarnessWindow]] = {}  # by test
        self._worker_statuses: list[str] = []  # verdicts that workers of xdist sent
        # JUnit's plug-in and a worker of xdist take over a test's properties when the test ends.
        is_worker = hasattr(config, "workerinput")
        self._waits = bool(failing) or is_worker or bool(config.getoption("xmlpath", None))

    def window_maker(self, item: pytest.Item) -> Callable[..., HarnessWindow | UnwatchedWindow]:
        """Return the function that makes a test's windows; a window without a label is named after the test."""
        policy = policy_of(item)

        def make(label: str | None = None) -> HarnessWindow | UnwatchedWindow:
            return self._open(item, FACE, label or item.nodeid, policy) or UnwatchedWindow()

        return make

    def _open(self, item: pytest.Item, face: str, label: str, policy: Policy) -> HarnessWindow | None:
        window = session.open_window(face, label, policy)
        if window is not None:
            self._windows.setdefault(item.nodeid, []).append(window)
        return window

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Drop the windows of this test's earlier try by pytest-rerunfailures; fail the test for invalid marker arguments."""
        if self._windows.get(item.nodeid):
            self._windows[item.nodeid] = []
        item.user_properties[:] = [each for each in item.user_properties if not each[0].startswith("gpuwatch_")]
        wrong = ""
        try:
            policy_of(item)
        except pytest.UsageError as error:  # would end the run in a worker of xdist
            wrong = str(error)
        if wrong:  # outside ``except``, so that pytest does not show the other error
            pytest.fail(wrong, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, object, object]:
        benchmark: Any = yield
        if fixturedef.argname in _FIXTURES and hasattr(benchmark, "extra_info"):
            item = request.node
            if getattr(benchmark, "disabled", False):
                item.user_properties.append(("gpuwatch_note", f"{BENCHMARK_FACE} is disabled, for example by xdist: no window"))
            elif (window := self._open(item, BENCHMARK_FACE, item.nodeid, policy_of(item))) is not None:
                BenchmarkRounds(benchmark, window)
        return benchmark

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        fixtures = getattr(item, "fixturenames", ())
        is_whole = item.get_closest_marker("gpuwatch") is not None and not {*_FIXTURES, "gpu_window"} & {*fixtures}
        window = self._open(item, FACE, item.nodeid, policy_of(item)) if is_whole else None
        if window is not None:
            window.declare_quietly(whole_program=True)
            window.begin()
        try:
            result = yield
        except BaseException as error:
            if window is not None:
                window.finish(error)
            raise
        if window is not None:
            window.finish()
        self._report(item)
        return result

    def _report(self, item: pytest.Item) -> None:
        """Add the windows to the test's report, and fail the test for a status in --gpuwatch-fail-on."""
        mine = self._windows.get(item.nodeid, [])
        if not mine or not self._waits:
            return
        judged = {id(window): verdict for window, verdict in session.current_session().judge()}
        found = [(window, judged[id(window)]) for window in mine if id(window) in judged]
        for window, verdict in found:
            item.user_properties += [("gpuwatch_run", window.run_id or ""), ("gpuwatch_status", verdict.status.value)]
            item.user_properties += [("gpuwatch_causes", verdict.why or ",".join(session.list_causes(verdict)))]
        failed = [f"{window.label}: {verdict}" for window, verdict in found if verdict.status in self._failing]
        if failed:
            pytest.fail("gpuwatch: " + "\n".join(failed), pytrace=False)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == "gpuwatch_note":
                session.current_session().notes[value] += 1
            elif name == "gpuwatch_status" and not self._windows:  # xdist's workers ran the benchmarks, not this process
                self._worker_statuses.append(f"{report.nodeid}: {value}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        session.current_session().judge()  # before pytest-benchmark's wrapper writes the results, which contain the verdicts
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        if gpus := list_gpus():
            machine_info["gpuwatch"] = gpus

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = [*session.summarize(session.current_session()), *self._worker_statuses]
        if not lines and terminalreporter.config.getoption("--gpuwatch"):
            lines = ["no test was judged: mark one with @pytest.mark.gpuwatch, or open a window with the fixture gpu_window"]
        if lines:
            terminalreporter.section("gpuwatch")
            for line in lines:
                terminalreporter.write_line(line)


def policy_of(item: pytest.Item) -> Policy:
    """Return the policy of a test's marker.  Raises pytest.UsageError: for unknown, positional and invalid arguments."""
    marker = item.get_closest_marker("gpuwatch")
    given: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    unknown = [name for name in given if name not in _ARGUMENTS]
    if unknown or (marker is not None and marker.args):
        found = ", ".join(unknown) or found_words(marker.args[0] if marker is not None else "")
        raise pytest.UsageError(f"{item.nodeid}: the marker gpuwatch expects {', '.join(_ARGUMENTS)} by name, found {found}")
    try:
        return check_policy(
            given.get("claim", "sustained"),
            None,
            given.get("tolerance"),
            given.get("precision"),
            given.get("reference_clock"),
            accept=given.get("accept", ()),
            limits=given.get("limits"),
        )
    except UsageError as error:
        raise pytest.UsageError(f"{item.nodeid}: the marker gpuwatch: {error}") from error
