"""Code shown on pages and in help texts: fenced blocks, commands with their output, and inline commands."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
from markdown_it import MarkdownIt

from gpuwatch.cli import WHAT_NEXT, cli

ROOT = Path(__file__).parents[1]
SHELL = ("console", "sh", "bash")
# Records, whose commands belong to their date, and notes on tests.
NOT_PAGES = ("CHANGELOG.md", "tests/", "docs/decisions/")
OMITTED = "…"
_NUMBER = re.compile(r"[-+±]?\d+(?:[.,:]\d+)*(?:e-?\d+)?")
_BACKTICKS = re.compile(r"(?<!`)`((?:sudo )?gpuwatch [-a-z][^`\n]*)`(?!`)")
_HELP_LINE = re.compile(
    r"^(?: +(gpuwatch (?:[^.\n]|\.(?! ))+?)  .*|Example: (gpuwatch .+))$", re.M
)  # next to its description, or in an epilog


@dataclass(frozen=True, slots=True)
class Command:
    """One command line of a block, and its output on the page."""

    page: str
    line: str
    shown: str = ""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line, comments=True)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; ``shown`` is the text block that follows directly."""

    page: str
    line_number: int
    language: str
    code: str
    shown: str = ""

    @property
    def first_line(self) -> str:
        return next(line for line in self.code.splitlines() if line.strip())

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line_number}"

    def commands(self) -> Iterator[Command]:
        """Split a shell block into prompts (``$ ``) with outputs, or without a prompt into one command per line."""
        if not re.search(r"^\$ ", self.code, re.M):
            lines = re.sub(r"\\\n", " ", self.code).splitlines()
            yield from (Command(self.page, line) for line in lines if line.strip() and not line.startswith("#"))
            return
        for piece in re.split(r"^\$ ", self.code, flags=re.M)[1:]:
            line, _, shown = re.sub(r"\\\n", " ", piece).partition("\n")
            yield Command(self.page, line, shown)


@cache
def pages() -> tuple[str, ...]:
    """Return every Markdown page except NOT_PAGES, including uncommitted ones; without git, those of the root folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split() or [str(path.relative_to(ROOT)) for path in ROOT.glob("*.md")]
    return tuple(sorted(name for name in names if not name.startswith(NOT_PAGES) and (ROOT / name).exists()))


@cache
def blocks() -> tuple[Block, ...]:
    """Return every fenced block of every page, in order."""
    found: list[Block] = []
    parser = MarkdownIt().disable("inline")  # fences are blocks
    for page in pages():
        after = None  # the block directly before this token
        for token in parser.parse((ROOT / page).read_text(encoding="utf-8")):
            if token.type != "fence":
                after = None
                continue
            assert token.map is not None
            block = Block(page, token.map[0] + 1, token.info.strip(), token.content)
            if after is not None and block.language == "text":
                found[-1] = Block(after.page, after.line_number, after.language, after.code, shown=block.code)
            found.append(block)
            after = block
    return tuple(found)


def commands() -> tuple[Command, ...]:
    """Return every command of every shell block."""
    return tuple(command for block in blocks() if block.language in SHELL for command in block.commands())


def inline_commands() -> Iterator[tuple[str, str]]:
    """Yield the commands in backticks of pages and help texts, and on own lines of help texts, with their place."""
    for page in pages():
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
        yield from ((page, line) for line in _BACKTICKS.findall(text))
    yield from (("gpuwatch", line) for line in help_lines(WHAT_NEXT))
    for name, command in help_texts(cli, "gpuwatch"):
        text = f"{command.help or ''}\n{command.epilog or ''}"
        texts = [text, *(each.help or "" for each in command.params if isinstance(each, click.Option))]
        yield from ((f"{name} --help", line) for each in texts for line in _BACKTICKS.findall(each) + help_lines(each))


def help_lines(text: str) -> list[str]:
    """Return the commands on their own line in a help text."""
    return [beside or example for beside, example in _HELP_LINE.findall(text)]


def help_texts(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all its subcommands, each with its full name."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from help_texts(found, f"{name} {below}")


def asked_command(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Find the click command of a command line that begins with ``gpuwatch``, its context, and its remaining words.

    Raises click.UsageError: for an unknown command, or an unknown option of a group.
    """
    found: click.Command = cli
    context = click.Context(cli, info_name="gpuwatch", **cli.context_settings)
    left = words[1:]
    while isinstance(found, click.Group) and left:
        _, rest, _ = found.make_parser(context).parse_args(list(left))
        if not rest:
            return found, context, left
        _, below, left = found.resolve_command(context, rest)
        assert below is not None
        found, context = below, click.Context(below, info_name=rest[0], parent=context)
    return found, context, left


def is_same(shown: str, printed: str, *, numbers_vary: bool) -> bool:
    """Compare word by word without line breaks: an ellipsis matches any characters, and between words any words."""
    words, text = " ".join(shown.split()), " ".join(printed.split())
    if numbers_vary:
        words, text = _NUMBER.sub("#", words), _NUMBER.sub("#", text)
    expression = re.escape(words).replace(rf"\ {OMITTED}\ ", r"\ (?:.*\ )?")
    expression = re.sub(rf"^{OMITTED}\\ ", r"(?:.* )?", expression)
    expression = re.sub(rf"\\ {OMITTED}$", r"(?: .*)?", expression)
    return re.fullmatch(expression.replace(OMITTED, ".*"), text) is not None
