"""The command line: one file per command, imported when the command is used."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence

import click

from annotate import __version__
from gpuwatch.cli import failures, output
from gpuwatch.cli.checked_commands import CheckedGroup
from gpuwatch.cli.options import settings_options
from gpuwatch.config.keys import find_misspelt

TASKS: Mapping[str, tuple[str, ...]] = {
    "Measure": ("run", "mark", "compare", "diff", "selftest", "demo"),
    "Look": ("show", "top", "audit", "explain"),
    "Share": ("report", "record", "judge", "ci", "verify", "export", "fleet"),
    "Set up": ("doctor", "daemon", "config", "dashboards", "scenes", "db"),
}
COMMANDS: Mapping[str, str] = {name: f"gpuwatch.cli.{name}" for names in TASKS.values() for name in names}

WHAT_NEXT = """\
Was this GPU benchmark valid, and how do you know?

  gpuwatch demo                     measure three benchmarks and judge them; no GPU needed
  gpuwatch run -- python bench.py   watch any program and judge its measurement
  gpuwatch doctor                   check what this machine can prove, and what is missing
  gpuwatch audit                    list the stored windows, worst first

In Python:  with gpuwatch.window("name") as w: …      then  print(w.verdict)
`gpuwatch --help` lists every command."""


class _Commands(CheckedGroup):
    """Commands by name; a module is imported when its command is used, so that `run` stays light."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        return importlib.import_module(COMMANDS[cmd_name]).command if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = {name: self.get_command(ctx, name) for name in COMMANDS}
        room = formatter.width - max(map(len, COMMANDS)) - 6  # the indent and gap that click subtracts too
        for task, names in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([(name, each.get_short_help_str(room)) for name in names if (each := found[name])])


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 10 to 12 for --fail-on; docs/CLI.md lists all.",
)
@click.version_option(__version__, message="gpuwatch %(version)s")
@settings_options
@click.pass_context
def cli(context: click.Context) -> None:
    """Watch GPUs from outside a benchmark, and judge whether its numbers can be trusted."""
    if context.invoked_subcommand is None:
        output.emit(WHAT_NEXT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.  Each expected failure is one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    output.keep_closed_streams_free()
    for name, meant in find_misspelt(os.environ).items():
        output.say(f"gpuwatch: {name}: expected the name of a setting, and ignored it; did you mean {meant}?")
    return failures.code_of(
        lambda: cli.main(arguments, prog_name="gpuwatch", standalone_mode=False), as_json=_wants_json(arguments)
    )


def _wants_json(arguments: Sequence[str]) -> bool:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    # `run --json` and `diff --json` name a file; the standard output of `run` belongs to its command.
    return "--json" in own and next((word for word in own if word in COMMANDS), "") not in ("run", "diff")
