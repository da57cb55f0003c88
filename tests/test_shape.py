"""Tests of the figures of the code's size and names."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests import shape

TIDY = '''
"""A module."""

TABLE = {
    "a": 1,
    "b": 22,
}  # fmt: skip


class Thing:
    def do(self, a, b, c, d, e, f, g):
        """Do it.

        In many words.
        """
        return a
'''


def figures(folder: Path, product: dict[str, str], tests: dict[str, str] | None = None) -> dict[str, shape.Figure]:
    """Measure sources given by path and text."""
    for path, text in {**product, **(tests or {})}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(textwrap.dedent(text))
    found = shape.figures(shape.read("product", root=folder), shape.read_long_names("tests", root=folder))
    return {figure.name: figure for figure in found}


def lines(count: int, text: str = "x = 1") -> str:
    return "\n".join([text] * count) + "\n"


def method(number: int) -> str:
    return f"    def do_{number}(self): ..."


def test_tidy_sources_meet_every_figure(tmp_path: Path) -> None:
    """Short code with unique names exceeds no limit."""
    found = figures(tmp_path, {"product/thing.py": TIDY}, {"tests/test_thing.py": "def test_thing_does_it(): ..."})
    assert [figure.name for figure in found.values() if not figure.is_met] == []


LENGTHS = {"statements", "lines of the median file", "lines of a file"}  # a long file exceeds several limits
VIOLATIONS = [
    ("statements", lines(shape.STATEMENTS_COUNT), None),
    ("lines of the median file", lines(2 * shape.MEDIAN_LINES), None),
    ("lines of a file", lines(shape.FILE_LINES + 1), "product/other.py"),
    ("lines of a class", "class Long:\n" + lines(shape.CLASS_LINES, "    x = 1"), "product/other.py:1 Long"),
    (
        "methods of a class",
        "class Busy:\n" + "\n".join(map(method, range(shape.CLASS_METHODS + 1))),
        "product/other.py:1 Busy",
    ),
    ("lines of a function", "def long():\n" + lines(shape.FUNCTION_LINES, "    x = 1"), "product/other.py:1 long"),
    ("lines of a function", "async def long():\n" + lines(shape.FUNCTION_LINES, "    x = 1"), "product/other.py:1 long"),
    ("parameters of a function", "def wide(a, b, c, d, e, f, *, g, h): ...", "product/other.py:1 wide"),
    ("parameters of a function", "def wide(a, b, c, d, e, f, *g, **h): ...", "product/other.py:1 wide"),
    ("fmt: skip outside tables", "def inner():\n    a = [\n        1\n    ]  # fmt: skip\n", "product/other.py:4"),
    ("fmt: skip outside tables", "# fmt: off\nTABLE = 1\n", "product/other.py:1"),
    ("class names used twice", "class Thing: ...\n", "Thing"),
    ("function docstrings without a verb", 'def length():\n    """The length."""\n', "product/other.py:1 length"),
]


@pytest.mark.parametrize(("name", "code", "place"), VIOLATIONS)
def test_figure_finds_its_violation(tmp_path: Path, name: str, code: str, place: str | None) -> None:
    """Each violation exceeds its figure and no other, apart from lengths; the violation's place is listed."""
    found = figures(tmp_path, {"product/thing.py": TIDY, "product/other.py": code})
    unmet = {figure.name for figure in found.values() if not figure.is_met}
    assert name in unmet
    assert unmet - LENGTHS == {name} - LENGTHS
    if place is not None:
        assert any(place in each for each in found[name].places), found[name].places


def test_module_names_are_unique_outside_commands(tmp_path: Path) -> None:
    """Two modules with one name are a violation, except for shared names such as ``errors`` and for files of ``cli/``."""
    found = figures(
        tmp_path, {f"product/{path}.py": "" for path in ("a/twice", "b/twice", "a/errors", "b/errors", "cli/once", "once")}
    )
    (place,) = found["module names used twice"].places
    assert place.startswith("twice: ")


def test_public_functions_may_have_many_parameters(tmp_path: Path) -> None:
    """A function of the public API, such as ``bench``, is exempt from the limit on parameters."""
    found = figures(tmp_path, {"product/thing.py": "def bench(a, b, c, d, e, f, g, h, i): ..."})
    assert found["parameters of a function"].is_met


def test_long_test_names_are_found(tmp_path: Path) -> None:
    name = "test_" + "x" * shape.TEST_NAME_LENGTH
    found = figures(tmp_path, {"product/thing.py": TIDY}, {"tests/test_thing.py": f"async def {name}(): ..."})
    assert found[f"test names above {shape.TEST_NAME_LENGTH} characters"].places == (f"tests/test_thing.py:1 {name}",)


def test_figures_decide_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """The program prints each figure with its limit, and returns 1 if a figure exceeds its limit."""
    code = shape.main(("dashboards",), "tests/dashboards")
    printed = capsys.readouterr().out.splitlines()
    assert code == int(any(line.startswith("!") for line in printed))
    assert sum("at most" in line for line in printed) == len(shape.figures(shape.read("dashboards"), []))
