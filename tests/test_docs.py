"""What README and the pages in docs/ show is run where no GPU is needed, and exists where one is."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import gpuwatch
from gpuwatch.cli import cli
from gpuwatch.client.window import Window
from tests.gpuwatch.live import running

ROOT = Path(__file__).parents[1]
ROOMS_COUNT = 30  # a map with more of them is no map
PAGES = (
    "README.md", "CONTRIBUTING.md", "DEVELOPMENT.md", "SECURITY.md", "CHANGELOG.md", "dashboards/README.md", "systemd/README.md",
    "docs/ALERTS.md", "docs/BENCH.md", "docs/TOP.md", "docs/COMPARE.md", "docs/DASHBOARDS.md", "docs/DIFF.md",
    "docs/FLEET.md", "docs/INTEGRATIONS.md", "docs/MARKS.md", "docs/METRICS.md", "docs/RESULTS.md", "docs/SCHEMAS.md", "docs/TRUE_CLOCK.md",
    "docs/UNTRUSTED.md", "docs/guide.md", "docs/index.md", "docs/decisions/README.md",
    *sorted(path.relative_to(ROOT).as_posix() for folder in ("concepts", "howto") for path in (ROOT / "docs" / folder).glob("*.md")),
)  # fmt: skip
CALLS: dict[str, Callable[..., object]] = {
    "gpuwatch.bench": gpuwatch.bench,
    "gpuwatch.compare": gpuwatch.compare,
    "gpuwatch.window": gpuwatch.window,
}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for text in re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S):
            yield page, textwrap.dedent(text)


def whole(code: str) -> bool:
    """Whether it runs by itself: it imports what it uses, and nothing that wants a GPU."""
    return re.search(r"^(import|from) ", code, re.M) is not None and "torch" not in code and "step()" not in code


SNIPPETS = list(blocks("python"))
LINES = [
    (page, re.sub(r"^(\$ )?(sudo )?", "", line.split("#")[0]).strip())
    for language in ("console", "sh")
    for page, text in blocks(language)
    for line in text.splitlines()
    if line.startswith("$ ") or language == "sh"
]
COMMANDS = [(page, line) for page, line in LINES if line.startswith("gpuwatch ")]
PROGRAMS = [(page, line) for page, line in LINES if line.startswith(("python -m ", "dashboards/"))]


def test_there_is_something_to_run() -> None:
    assert sum(whole(code) for _, code in SNIPPETS) >= 3
    assert len(COMMANDS) >= 5


def test_what_needs_no_gpu_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path) as live:
        for name in ("source", "state", "socket"):
            monkeypatch.setenv(f"GPUWATCH_{name.upper()}", str(getattr(live.settings, name)))
        for page, code in SNIPPETS:
            if whole(code):
                exec(compile(code, page, "exec"), {})
                assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(("page", "code"), SNIPPETS)
def test_every_keyword_shown_is_one(page: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in CALLS:
            known = inspect.signature(CALLS[name]).parameters
            assert {keyword.arg for keyword in node.keywords} <= set(known), page
        elif name.startswith("w."):
            assert hasattr(Window, name.removeprefix("w.")), page


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_command_shown_is_one(page: str, command: str) -> None:
    arguments = shlex.split(command)[1:]
    found: click.Command = cli
    while isinstance(found, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        below = found.get_command(click.Context(found), name)
        assert below is not None, page
        found = below
    options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    assert {argument for argument in before if argument.startswith("--")} <= options, page


@pytest.mark.parametrize(("page", "command"), PROGRAMS)
def test_every_program_shown_is_there(page: str, command: str) -> None:
    words = shlex.split(command)
    if words[0] == "python":
        assert importlib.util.find_spec(words[2]) is not None, page
    else:
        assert os.access(ROOT / words[0], os.X_OK), page


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


def test_every_module_on_the_map_exists() -> None:
    table = (ROOT / "DEVELOPMENT.md").read_text().partition("## The map")[2].partition("A window's life")[0]
    named = re.findall(r"`((?:annotate|gpuwatch|tests|dashboards|systemd)/[\w/-]*(?:\.\w+)?)`", table)
    assert len(named) > 20
    for path in named:
        assert (ROOT / path).exists(), path
    assert table.count("\n| `") <= ROOMS_COUNT


@pytest.mark.parametrize("page", ["README.md", "DEVELOPMENT.md", "SECURITY.md", "CHANGELOG.md"])
def test_every_path_named_exists(page: str) -> None:
    """Every path from the top of the tree exists; a word in capitals, as in ``bench_NAME.py``, stands for any."""
    for path in re.findall(r"`((?:annotate|gpuwatch|tests|dashboards|systemd|docs)/[\w./-]+)`", (ROOT / page).read_text()):
        assert any(ROOT.glob(re.sub(r"[A-Z]{4,}(?=\.py)", "*", path))), path


def test_every_test_that_security_names_exists() -> None:
    """A promise whose test was renamed would stand without one."""
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    assert len(named) > 5
    assert named <= defined, named - defined


def test_every_record_that_a_recipe_names_exists() -> None:
    """A recipe that says "one `Alert`" names a class of this tree."""
    recipes = (ROOT / "DEVELOPMENT.md").read_text().partition("## Recipes")[2].partition("## How code reads here")[0]
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`", recipes))
    code = [
        path.read_text() for folder in ("annotate", "gpuwatch", "dashboards", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(named) > 5
    assert named <= {name for text in code for name in re.findall(r"^class (\w+)", text, re.M)}
