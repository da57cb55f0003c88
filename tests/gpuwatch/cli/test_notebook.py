"""Tests of %%gpuwatch, a cell in a window, with a fake of IPython's shell."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import gpuwatch
from gpuwatch.client.window import Window
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError


@dataclass(frozen=True)
class Ended:
    """A fake of IPython's result of a cell."""

    error: BaseException | None

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class Printed:
    """A fake of IPython's printer."""

    said: str = ""

    def text(self, words: str) -> None:
        self.said += words


@dataclass
class Notebook:
    """A fake of IPython's shell."""

    magics: dict[str, Callable[..., Any]] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)

    def register_magic_function(self, func: Any, magic_kind: str, magic_name: str) -> None:
        assert magic_kind == "cell"
        self.magics[magic_name] = func

    def run_cell(self, raw_cell: str) -> Ended:
        try:
            exec(raw_cell, self.names)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - as IPython does
            return Ended(error)
        return Ended(None)


@pytest.fixture
def notebook() -> Notebook:
    found = Notebook()
    gpuwatch.load_ipython_extension(found)
    return found


def run(notebook: Notebook, line: str, cell: str, settings: Settings) -> Window:
    found = notebook.magics["gpuwatch"](f"{line} {shlex.join(settings.flags())}", cell)
    assert isinstance(found, Window)
    return found


def test_cell_runs_in_a_window_and_shows_its_verdict(notebook: Notebook, daemon: Settings) -> None:
    watched = run(notebook, "gemm --claim burst --accept dark-time", "answer = 6 * 7", daemon)
    assert notebook.names["answer"] == 42
    assert (watched.label, watched.verdict.claim) == ("gemm", "burst")
    assert watched.verdict.policy["accept"] == ["dark-time"]
    assert "SIMULATED" in watched._repr_html_()
    printed = Printed()
    watched._repr_pretty_(printed, False)
    assert printed.said == str(watched.verdict)


@pytest.mark.parametrize(("cell", "error"), [("1 / 0", "ZeroDivisionError"), ("raise KeyboardInterrupt", "KeyboardInterrupt")])
def test_verdict_names_the_exception_of_a_cell(notebook: Notebook, daemon: Settings, cell: str, error: str) -> None:
    watched = run(notebook, "", cell, daemon)
    assert watched.label == "cell"
    assert error in watched.verdict.why


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gemm --clam burst", "unknown option '--clam'; did you mean '--claim'?"),
        ("gemm --claim fast", "unknown claim 'fast'; known: burst, fixed-clock, sustained"),
        ("gemm --limit x", "--limit: expected RULE.NAME=NUMBER, found 'x'"),
        ("'gemm", "No closing quotation"),
    ],
)
def test_wrong_line_is_refused_in_one_line_before_the_cell(notebook: Notebook, line: str, words: str) -> None:
    """IPython prints the text of ``_render_traceback_`` instead of a traceback."""
    with pytest.raises(UsageError) as refused:
        notebook.magics["gpuwatch"](line, "answer = 1")
    (shown,) = getattr(refused.value, "_render_traceback_")()  # noqa: B009 - IPython's name
    assert shown.startswith(f"%%gpuwatch: {words}")
    assert "answer" not in notebook.names


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_of_the_magic_runs_no_cell(notebook: Notebook, option: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert notebook.magics["gpuwatch"](option, "answer = 1") is None
    assert "Usage: %%gpuwatch [OPTIONS] [LABEL]" in capfd.readouterr().out
    assert "answer" not in notebook.names
