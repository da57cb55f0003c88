"""The command line: one file per command, imported only when it is asked for."""

from __future__ import annotations

import difflib
import errno
import importlib
import sys
from collections.abc import Mapping, Sequence

import click

from annotate import __version__
from annotate.errors import AnnotateError
from annotate.report import plain
from gpuwatch.cli import output, refusals
from gpuwatch.cli.exits import Exit, ReaderLeft, Stop
from gpuwatch.cli.options import settings_options
from gpuwatch.errors import DaemonError, GpuwatchError, UsageError

COMMANDS: Mapping[str, str] = {
    name: f"gpuwatch.cli.{name}"
    for name in (
        "run", "show", "top", "audit", "compare", "explain", "doctor", "selftest", "demo", "record", "report", "verify", "export", "daemon", "config", "db",
    )
}  # fmt: skip

WHAT_NEXT = """\
Was this GPU benchmark valid, and how do you know?

  gpuwatch demo                     three benchmarks, three verdicts; no GPU needed
  gpuwatch run -- python bench.py   watch any program and judge what it measured
  gpuwatch doctor                   what this machine can prove, and what stands in the way
  gpuwatch audit                    every window so far, worst first

In Python:  with gpuwatch.window("name") as w: …      then  print(w.verdict)
`gpuwatch --help` lists every command."""


class _Commands(click.Group):
    """Commands by name; a module is imported when its command is used, so that `run` stays light."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(COMMANDS)}"
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="gpuwatch %(version)s")
@settings_options
@click.pass_context
def cli(context: click.Context) -> None:
    """Watch GPUs from outside a benchmark, and judge whether its numbers may be trusted."""
    if context.invoked_subcommand is None:
        output.emit(WHAT_NEXT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code.  Whatever goes wrong on purpose is one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    output.keep_closed_streams_free()
    try:
        code = cli.main(arguments, prog_name="gpuwatch", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (BrokenPipeError, ReaderLeft, click.Abort) as error:
        return _quiet(error)
    except click.exceptions.NoArgsIsHelpError as error:  # `gpuwatch config` alone: its help, as it is
        output.say(error.format_message())
        return Exit.USAGE
    except (click.ClickException, GpuwatchError, AnnotateError, Stop) as error:
        return _report(error, as_json=_wants_json(arguments))
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:  # click's own words, as --help, on a full disk
            output.silence(sys.stdout)
            return _report(GpuwatchError(f"standard output: {error.strerror}"), as_json=False)
        if error.filename is None:
            raise  # not about a file somebody named or owns: our mistake, with its traceback
        return _report(GpuwatchError(f"{error.filename}: {error.strerror}"), as_json=_wants_json(arguments))
    return int(code or 0)


def _quiet(error: Exception) -> Exit:
    """The reader left, or somebody pressed Ctrl-C: neither needs words."""
    if isinstance(error, click.Abort):
        return Exit.INTERRUPTED
    output.silence(sys.stdout)
    return Exit.BROKEN_PIPE


def _report(error: Exception, *, as_json: bool) -> int:
    message = refusals.words(error) if isinstance(error, click.ClickException) else str(error)
    message = plain(" ".join(message.split()))
    code, name = _code_and_name(error)
    output.say(f"gpuwatch: {message}")
    if as_json and name != "output":
        output.emit_json({"error": {"code": name, "message": message}})
    return code


def _code_and_name(error: Exception) -> tuple[int, str]:
    if isinstance(error, Stop):
        return error.code, error.name
    if isinstance(error, UsageError | AnnotateError | click.UsageError):
        return Exit.USAGE, "usage"
    if isinstance(error, DaemonError):
        return Exit.FAILED, f"daemon-{error.code}"
    return Exit.FAILED, type(error).__name__.removesuffix("Error").lower()


def _wants_json(arguments: Sequence[str]) -> bool:
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    # `run --json` names a file; what it would say on standard output belongs to its command.
    return "--json" in ours and next((word for word in ours if word in COMMANDS), "") != "run"
