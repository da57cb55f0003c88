"""Tests that docs/DIFF.md shows the output of its commands.  ``GPUWATCH_GOLDEN=1`` rewrites the page's outputs."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from gpuwatch.cli import diff
from tests.gpuwatch.cli.conftest import Gpuwatch

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "DIFF.md"
BLOCK = re.compile(r"```console\n\$ gpuwatch ([^\n]+)\n(.*?)```", re.S)
IS_WRITTEN_ANEW = "GPUWATCH_GOLDEN" in os.environ
COMMANDS = [command for command, _ in BLOCK.findall(PAGE.read_text())]


def test_capability_table_has_valid_commands() -> None:
    """All but two of the 39 capabilities have a valid command, and links lead to headings of the page."""
    text = PAGE.read_text()
    rows = re.findall(r"^\| 003\.(\d+) \| (.+?) \| (.+) \| (.+) \|$", text, re.M)
    assert [int(number) for number, *_ in rows] == list(range(1, 40))
    without = [number for number, _, does, _ in rows if not re.search(r"`gpuwatch diff ", does)]
    assert without == [number for number, *_, shown in rows if shown == "—"] == ["18", "39"]
    headings = {re.sub(r"[^\w ]", "", found).lower().replace(" ", "-") for found in re.findall(r"^#+ (.+)$", text, re.M)}
    assert {link for *_, shown in rows for link in re.findall(r"\(#([\w-]+)\)", shown)} <= headings
    for *_, does, _ in rows:
        for words in re.findall(r"`gpuwatch diff ([^`]+)`", does):
            with diff.command.make_context("diff", shlex.split(words)) as context:
                assert context.params["sides"], words


@pytest.mark.parametrize("command", COMMANDS)
def test_page_shows_the_commands_output(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(ROOT / "examples" / "diff")
    name, *rest = shlex.split(command)
    ended = gpuwatch(name, "--no-time", *rest)
    shown = (ended.out + ended.err).replace("not timed: --no-time", "not timed: no NVIDIA GPU on this machine")
    shown = shown.replace(r"not timed: \-\-no\-time", "not timed: no NVIDIA GPU on this machine")  # as Markdown
    if IS_WRITTEN_ANEW:
        text = PAGE.read_text()
        PAGE.write_text(
            BLOCK.sub(lambda block: f"```console\n$ gpuwatch {block[1]}\n{shown}```" if block[1] == command else block[0], text)
        )
        return
    assert dict(BLOCK.findall(PAGE.read_text()))[command] == shown
