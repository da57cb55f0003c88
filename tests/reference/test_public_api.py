"""Tests of the public Python names: every name is documented in all parts, and every example runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpuwatch
from tests.gpuwatch.harness.test_harness_examples import NEEDED
from tests.gpuwatch.live import running
from tests.reference.docstring_parts import split_docstring
from tests.reference.public_names import CONSTANTS, MODULES, ROOT, PublicName, find_gaps, list_names, undocumented
from tests.reference.run_examples import VARIES, list_sessions, run_session
from tests.waiting import PATIENCE_S

RECORDING = ROOT / "tests/traces/h200-side-stream.capsule"


@pytest.mark.parametrize("name", list(list_names()), ids=lambda name: name.path)
def test_public_name_is_documented_in_all_parts(name: PublicName) -> None:
    """A docstring has a summary, every argument, units of numbers, the return value, the exceptions, and an example."""
    assert list(find_gaps(name)) == []


def test_page_lists_every_public_name() -> None:
    assert undocumented() == set()
    assert set(gpuwatch.__all__) == {*MODULES["gpuwatch"], *CONSTANTS}


def test_examples_of_docstrings_run(tmp_path: Path) -> None:
    """Every example runs unchanged, in one process with one daemon on a simulated GPU."""
    shutil.copy(RECORDING, tmp_path / "window.capsule")
    with running(tmp_path) as live:
        given = {f"GPUWATCH_{name.upper()}": str(getattr(live.settings, name)) for name in ("source", "state", "socket")}
        command = [sys.executable, "-m", "tests.reference.run_examples"]
        environment = {**os.environ, **given, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    failed, of, count = ran.stdout.split()[-4:-1]
    assert (failed, of) == ("0", "of")
    assert int(count) > 100


def test_example_files_run_in_tests() -> None:
    """The tests of harnesses run every example that is a file."""
    files = {Path(name.parts.example_file).name for name in list_names() if name.parts.example_file}
    assert files
    assert files <= set(NEEDED)


def test_every_example_belongs_to_a_session() -> None:
    sessions = dict(list_sessions())
    assert {name.path for name in list_names() if name.parts.example} <= set(sessions)
    assert all(sessions[f"gpuwatch.{name}"] and parts.raises for name, parts in CONSTANTS.items())


def _complete(count: int) -> int:
    """Return a number.

    Args:
        count: Number of things.

    Raises nothing.

    Example:
        >>> 1
        1
    """
    return count


def _lacks_argument(count: int) -> int:
    """Return a number.

    Raises nothing.

    Example:
        >>> 1
        1
    """
    return count


def _lacks_unit(length: float) -> None:
    """Take a length.

    Args:
        length: How long it is.
    """


def _begins_with_what(count: int) -> int:
    """What is counted."""
    return count


class _Undocumented:
    """A thing."""

    def __init__(self) -> None:
        self.size_bytes = 3

    def grow(self) -> None:
        pass


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (_complete, []),
        (_lacks_argument, ["expected the arguments ['count'], found []"]),
        (_lacks_unit, ["length: a number without a unit", "the exceptions are undocumented", "no example"]),
        (_begins_with_what, ["expected a verb or noun first", "expected the arguments", "the return value is undocumented"]),
        (_Undocumented, ["tests.value: the exceptions are", "undocumented attribute", "no docstring", "no example"]),
    ],
)
def test_gaps_of_a_docstring_are_found(value: Callable[..., object], found: list[str]) -> None:
    gaps = list(find_gaps(PublicName("tests.value", value, split_docstring(value.__doc__))))
    assert all(any(words in gap for gap in gaps) for words in found), gaps
    assert bool(gaps) == bool(found)


@pytest.mark.parametrize(
    ("session", "failed"),
    [
        ("    >>> 1 + 1\n    2", 0),
        ("    >>> 1 + 1\n    3", 1),
        (f"    >>> print('flagged 1.5')  {VARIES}\n    valid 20", 0),
        (f"    >>> print('flagged 1.5')  {VARIES}\n    valid µs", 1),
        ("    >>> print('flagged')\n    valid", 1),
    ],
)
def test_example_may_vary_only_on_marked_lines(session: str, failed: int) -> None:
    assert run_session("example", session, report=lambda _: None)[0] == failed


def test_docstring_is_split_into_its_parts() -> None:
    parts = split_docstring(_complete.__doc__)
    assert parts.summary == "Return a number."
    assert parts.arguments == {"count": "Number of things."}
    assert parts.raises == (("", "Raises nothing."),)
    assert parts.example == ">>> 1\n1"
    two = split_docstring("Do it.\n\nRaises A: when a.\nRaises b.C: when c.\n\nProvisional: it is new.\n\nExample: ``a/b.py``")
    assert two.raises == (("A", "when a."), ("b.C", "when c."))
    assert (two.provisional, two.example_file) == ("it is new.", "a/b.py")
