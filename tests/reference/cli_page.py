"""docs/CLI.md, written from click's commands: ``python -m tests.reference.cli_page``, or ``--check``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import click

from gpuwatch.cli import TASKS, cli
from gpuwatch.cli.exit_codes import MEANINGS
from tests.generated_page import write_or_check
from tests.reference.public_names import ROOT

PAGE = ROOT / "docs/CLI.md"
COMMON = ("source", "state", "socket", "config", "log_level")  # options of every command, which the page lists once
_EXAMPLE = "Example: "
_HEAD = """\
# Command line

Written by `python -m tests.reference.cli_page` from the commands; edit those.

`gpuwatch COMMAND --help` prints the command's part of this page. Data goes to standard output; all other text goes to standard error. `--json` writes one JSON
object whose first key is `schema`; its schemas are in `docs/schemas/`.
"""
_COMMON = """\
## Options of every command

These options may precede or follow the command's name. `gpuwatch config show` prints the resulting settings.
"""


@dataclass(frozen=True, slots=True)
class CliCommand:
    """One command or group, with the words that call it."""

    words: tuple[str, ...]
    command: click.Command

    @property
    def path(self) -> str:
        return " ".join(self.words)

    @property
    def context(self) -> click.Context:
        # A command keeps the help option of its first context, which must have -h, as in the real program.
        settings: dict[str, Any] = {"help_option_names": cli.context_settings["help_option_names"]}
        parent = None if len(self.words) == 1 else click.Context(cli, info_name=" ".join(self.words[:-1]), **settings)
        return click.Context(self.command, info_name=self.words[-1], parent=parent, **settings)

    @property
    def is_leaf(self) -> bool:
        return not isinstance(self.command, click.Group) or self.command.invoke_without_command

    @property
    def help(self) -> str:
        return re.sub(r"(?m)^ {4}", "", self.command.help or "").strip()

    @property
    def example(self) -> str:
        """Return the example of the epilog, else the first command line of the help, or an empty text without either."""
        if (self.command.epilog or "").startswith(_EXAMPLE):
            return (self.command.epilog or "").removeprefix(_EXAMPLE)
        shown = re.search(rf"(?m)^\s*({self.path} .*?)(  .*)?$", self.help)
        return shown[1] if shown is not None else ""

    @property
    def options(self) -> list[click.Option]:
        """Return the options of this command alone."""
        found = [each for each in self.command.params if isinstance(each, click.Option) and not each.hidden]
        return [each for each in found if each.name not in COMMON]


def list_commands(group: click.Group = cli, words: tuple[str, ...] = ("gpuwatch",)) -> Iterator[CliCommand]:
    """Yield every command below a group, each group before its commands, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield CliCommand((*words, name), command)
        if isinstance(command, click.Group):
            yield from list_commands(command, (*words, name))


def page() -> str:
    commands = list(list_commands())
    root = CliCommand(("gpuwatch",), cli)
    parts = [_HEAD, "## Commands\n", *_contents(commands), "## Exit codes\n", _exit_codes()]
    parts += [_COMMON, _options([each for each in cli.params if isinstance(each, click.Option)], root)]
    parts += [render(each) for each in commands]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _contents(commands: Sequence[CliCommand]) -> Iterator[str]:
    yield "| Task | Command | Does |\n|---|---|---|"
    for task, names in TASKS.items():
        for each in commands:
            if each.words[1] in names:
                link = each.path.replace(" ", "-")
                yield f"| {task} | [`{each.path}`](#{link}) | {_cell(each.command.get_short_help_str(200))} |"
    yield ""


def _exit_codes() -> str:
    rows = [f"| {code.value} | {_cell(meaning)} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["| Code | Meaning |", "|---|---|", *rows]) + "\n"


def render(each: CliCommand) -> str:
    usage = " ".join([each.path, *each.command.collect_usage_pieces(each.context)])
    lines = [f"## {each.path}\n", f"```text\n{usage}\n```\n", *_paragraphs(each.help)]
    if each.options:
        lines.append(_options(each.options, each))
    if each.command.epilog:
        lines.append(f"```console\n$ {each.example}\n```\n")
    return "\n".join(lines)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield help as Markdown; a block that click leaves unwrapped becomes code."""
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.lstrip().startswith("\b"):
            lines = [line.strip() for line in paragraph.strip("\b \n").splitlines()]
            yield "```text\n" + "\n".join(lines) + "\n```\n"
        else:
            yield " ".join(paragraph.split()) + "\n"


def _options(options: Sequence[click.Option], each: CliCommand) -> str:
    lines = ["| Option | Default | Meaning |", "|---|---|---|"]
    for option in options:
        names = ", ".join([*option.opts, *option.secondary_opts])
        metavar = (
            ""
            if option.is_flag or option.count
            else f" {option.make_metavar(each.context)}".replace("INTEGER RANGE", "N").replace("FLOAT RANGE", "NUMBER")
        )
        text = re.sub(r" *\[default: .*\]", "", option.help or "")
        lines.append(f"| `{names}{_cell(metavar)}` | {_cell(_default(option))} | {_cell(text)} |")
    return "\n".join(lines) + "\n"


def _default(option: click.Option) -> str:
    """Return the default as text; the option's meaning describes computed defaults."""
    noted = re.search(r"\[default: (.*)\]|Default: (.*)\.$", option.help or "")
    value = option.default
    if noted is not None:
        return noted[1] or noted[2]
    return "" if value in (None, False, ()) or isinstance(value, Enum) or option.is_flag else f"{value}"


def _cell(text: str) -> str:
    return re.sub(" {2,}", " ", text).replace("|", "\\|")


def main(arguments: Sequence[str]) -> int:
    """Write the page; with ``--check`` return 1 if the page in the tree differs."""
    return write_or_check(PAGE, page(), "the commands", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
