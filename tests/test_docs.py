"""What README and the pages in docs/ show is run where no GPU is needed, and exists where one is."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import gpuwatch
from gpuwatch.cli import cli
from gpuwatch.window import Window
from tests.gpuwatch.live import running

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "DEVELOPMENT.md", "docs/BENCH.md", "docs/COMPARE.md", "docs/FLEET.md", "docs/TRUE_CLOCK.md")
CALLS: dict[str, Callable[..., object]] = {
    "gpuwatch.bench": gpuwatch.bench,
    "gpuwatch.compare": gpuwatch.compare,
    "gpuwatch.window": gpuwatch.window,
}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for text in re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S):
            yield page, text


def whole(code: str) -> bool:
    """Whether it runs by itself: it imports what it uses, and nothing that wants a GPU."""
    return re.search(r"^(import|from) ", code, re.M) is not None and "torch" not in code and "step()" not in code


SNIPPETS = list(blocks("python"))
COMMANDS = [
    (page, line.split("#")[0].removeprefix("$ ").strip())
    for page, text in blocks("console")
    for line in text.splitlines()
    if line.startswith("$ gpuwatch ")
]


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
    _, name, *arguments = shlex.split(command)
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, page
    options = {option for parameter in found.params for option in parameter.opts}
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    assert {argument for argument in before if argument.startswith("--")} <= options, page


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


def test_every_module_on_the_map_exists() -> None:
    table = (ROOT / "DEVELOPMENT.md").read_text().partition("## The map")[2].partition("A window's life")[0]
    named = re.findall(r"`((?:annotate|gpuwatch|tests)/[\w/]*(?:\.py)?)`", table)
    assert len(named) > 20
    for path in named:
        assert (ROOT / path).exists(), path
