"""Rules that keep the suite green on a busy machine, checked in the tests' source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.conftest import LONG_MODULES

HERE = Path(__file__).parent
# Programs and campaigns, which are not tests.
PROGRAMS = ("bench", "campaign", "compatibility/write.py", "hardware", "pictures.py")
# Places that let real time pass, with the reason why no condition shows that enough time has passed.
SLEEPS = {
    "waiting.py": "the helpers themselves",
    "fake_nvml/everything.py": "a program on the mock driver: a metric is the mean between two samples",
    "gpuwatch/scripted.py": "a driver that waits for events for the requested time",
    "gpuwatch/tui/test_app.py": "a paused screen must not change during this time",
    "gpuwatch/tui/test_screens.py": "the palette searches a moment after the last key",
    "gpuwatch/tui/test_time_travel.py": "stored data must not be requested during this time",
    "systemd/hanging.py": "a driver that hangs",
}
# Bounds on time that do not depend on load.
BOUNDS = {
    "gpuwatch/sampling/test_plan.py::test_measurement_takes_its_configured_time": "a virtual clock",
    "gpuwatch/sources/test_contract.py::test_source_events_returns_after_its_timeout": "checked on virtual clocks only",
}
CLOCKS = frozenset({"monotonic", "monotonic_ns", "now_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time"})
# A file or a test without any of these words breaks none of the rules below; walking through all takes seconds.
CALLED_WORDS = ("sleep(", "pause(", "Event()", "deadline=", "max_examples")
WORDS = (*CLOCKS, *CALLED_WORDS)

Test: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def calls_and_tests() -> tuple[tuple[tuple[str, ast.Call], ...], tuple[tuple[str, Test], ...]]:
    """Return every call in the files with one of CALLED_WORDS, and every test with one of CLOCKS, each with its file's name."""
    calls, tests = [], []
    for path in sorted(HERE.rglob("*.py")):
        name, text = path.relative_to(HERE).as_posix(), path.read_text()
        if name.startswith(PROGRAMS) or not any(word in text for word in WORDS):
            continue
        tree, lines = ast.parse(text), text.splitlines()
        if any(word in text for word in CALLED_WORDS):
            calls += [(name, node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        tests += [(name, test) for test in found_tests(tree.body) if has_clock(lines, test)]
    return tuple(calls), tuple(tests)


def found_tests(statements: list[ast.stmt]) -> Iterator[Test]:
    """Yield the tests of a module, in classes as well."""
    for node in statements:
        if isinstance(node, ast.ClassDef):
            yield from found_tests(node.body)
        elif isinstance(node, Test) and node.name.startswith("test_"):
            yield node


def has_clock(lines: list[str], test: Test) -> bool:
    """Return True if the text of a test contains a name of CLOCKS."""
    return any(word in line for line in lines[test.lineno - 1 : test.end_lineno] for word in CLOCKS)


def called(node: ast.AST) -> str:
    """Return the last name of the called expression, or an empty text if the node is not a call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_sleep(node: ast.AST) -> bool:
    """Return True if a call lets a fixed time pass: a sleep or pause with a number, or a wait for a new event."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("sleep", "pause"):
        return any(isinstance(each, ast.Constant) and each.value for each in node.args)
    return node.func.attr == "wait" and called(node.func.value) == "Event"


def is_elapsed(node: ast.AST) -> bool:
    """Return True if an expression contains an elapsed time: a difference with a clock's reading."""
    return any(
        isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) and any(called(part) in CLOCKS for part in ast.walk(each))
        for each in ast.walk(node)
    )


def bounded(test: Test) -> Iterator[ast.AST]:
    """Yield a test's comparisons with an elapsed time on the smaller side."""
    names = {
        target.id
        for node in ast.walk(test)
        if isinstance(node, ast.Assign) and is_elapsed(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            smaller = (
                left if isinstance(operator, ast.Lt | ast.LtE) else right if isinstance(operator, ast.Gt | ast.GtE) else None
            )
            if smaller is None:
                continue
            if is_elapsed(smaller) or any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(smaller)):
                yield node


def has_marker(test: Test, *names: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in names for each in test.decorator_list for node in ast.walk(each)
    )


def test_hypothesis_deadlines_are_set_in_one_place() -> None:
    """No test sets a hypothesis deadline: the profile in conftest.py disables deadlines, because durations depend on load."""
    found = [
        f"{name}:{node.lineno}"
        for name, node in calls_and_tests()[0]
        if called(node) in ("settings", "register_profile")
        if any(keyword.arg == "deadline" for keyword in node.keywords)
    ]
    assert [place.partition(":")[0] for place in found] == ["conftest.py"], found


def test_long_modules_exist() -> None:
    """Every module in LONG_MODULES exists: a renamed module would lose its early start."""
    assert [name for name in LONG_MODULES if not (HERE.parent / name).exists()] == []


def test_numbers_of_examples_are_shares() -> None:
    """Every number of examples is a share: the suite tries a part, and ``make bench`` tries all."""
    found = [
        f"{name}:{node.lineno}"
        for name, node in calls_and_tests()[0]
        for keyword in node.keywords
        if keyword.arg == "max_examples" and called(keyword.value) != "share_of"
    ]
    assert found == []


def test_sleeps_have_a_recorded_reason() -> None:
    """Only the files in SLEEPS let a fixed time pass, and each of these files except waiting.py still does."""
    found = {(name, node.lineno) for name, node in calls_and_tests()[0] if is_sleep(node)}
    assert sorted(place for place in found if place[0] not in SLEEPS) == []
    assert sorted(SLEEPS.keys() - {name for name, _ in found} - {"waiting.py"}) == [], "allowed and no longer there"


def test_elapsed_time_is_bounded_only_in_slow_tests() -> None:
    """Only tests marked ``slow``, ``soak`` or ``gpu``, in ``*_gpu.py`` or in BOUNDS have an upper bound on elapsed time.

    Each test in BOUNDS still has one.
    """
    found = {
        f"{name}::{test.name}"
        for name, test in calls_and_tests()[1]
        if not has_marker(test, "slow", "soak", "gpu") and "_gpu.py" not in name and any(bounded(test))
    }
    assert found == BOUNDS.keys()


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("time.sleep(0.1)", True),
        ("await asyncio.sleep(0.1)", True),
        ("await pilot.pause(0.3)", True),
        ("threading.Event().wait(0.1)", True),
        ("await asyncio.sleep(0)", False),
        ("time.sleep(seconds)", False),
        ("gate.wait(PATIENCE_S)", False),
        ("await pilot.pause()", False),
    ],
)
def test_sleep_rule_finds_sleeps(code: str, *, is_found: bool) -> None:
    """A sleep, pause or event wait with a literal time is found; a variable time or a condition is not."""
    assert any(map(is_sleep, ast.walk(ast.parse(code)))) is is_found


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("assert time.monotonic() - begun_s < 5.0", True),
        ("assert 2.0 > (clock.now_ns() - begun_ns) / 1e9", True),
        ("took_s = time.perf_counter() - begun_s\n    assert took_s < 0.1", True),
        ("assert 0.04 < time.monotonic() - begun_s < 10.0", True),
        ("assert time.monotonic() - begun_s >= 0.05", False),
        ("assert calls_count < 8 * (clock.now_ns() - begun_ns) / 1e9", False),
        ("assert rows_count < 5", False),
    ],
)
def test_elapsed_rule_finds_upper_bounds(code: str, *, is_found: bool) -> None:
    """An upper bound on elapsed time is found; a lower bound and a bound on a count are not."""
    (test,) = ast.parse(f"def test_it():\n    {code}\n").body
    assert isinstance(test, ast.FunctionDef)
    assert any(bounded(test)) is is_found
