"""Tests of the command line's reference: examples that parse, options described by sentences, and meanings of exit codes."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from gpuwatch.cli import cli
from gpuwatch.cli.exit_codes import MEANINGS, Exit
from tests.reference.cli_page import CliCommand, list_commands, page

COMMANDS = list(list_commands())
LEAVES = [each for each in COMMANDS if each.is_leaf]
# First words of sentences that describe the option instead of stating its effect.
DESCRIBING = {
    "the",
    "a",
    "an",
    "what",
    "who",
    "whose",
    "which",
    "where",
    "whether",
    "how",
    "of",
    "beside",
    "only",
    "its",
    "this",
}


@pytest.mark.parametrize("each", LEAVES, ids=lambda each: each.path)
def test_command_has_an_example_that_parses(each: CliCommand) -> None:
    """The example names this command, existing options, and an accepted number of arguments."""
    words = shlex.split(each.example)
    assert tuple(words[: len(each.words)]) == each.words
    rest = words[len(each.words) :]
    parser = each.command.make_parser(each.context)
    given, arguments, _ = parser.parse_args(args=list(rest))
    assert isinstance(each.command, click.Group) or not arguments, "arguments that the command does not take"
    required = [one.name for one in each.command.params if one.required]
    assert all(given.get(name or "") for name in required)


@pytest.mark.parametrize("each", [CliCommand(("gpuwatch",), cli), *COMMANDS], ids=lambda each: each.path)
def test_command_and_options_read_as_sentences(each: CliCommand) -> None:
    assert re.match(r"[A-Z]\w+ ", each.help)
    for option in each.options:
        first, *_ = (option.help or "").partition(" ")
        assert first.lower() not in DESCRIBING, f"{option.opts[0]}: expected a verb first, found {option.help!r}"
        assert re.match(r"[A-Z]", first), option.opts
        assert re.search(r"[.\]]$", option.help or ""), option.opts


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Exit)
    assert all(f"| {code.value} |" in page() for code in Exit)


def test_page_names_every_command_and_option() -> None:
    text = page()
    for each in COMMANDS:
        section = text.partition(f"\n## {each.path}\n")[2].partition("\n## ")[0]
        assert section, each.path
        assert all(f"`{option.opts[0]}" in section for option in each.options), each.path
