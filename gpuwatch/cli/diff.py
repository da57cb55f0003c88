"""gpuwatch diff: two kernels, by their code; what a GPU would add is said to be missing."""

from __future__ import annotations

import secrets
import shlex
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from annotate.output.report import plain
from gpuwatch.cli import options, output
from gpuwatch.cli.compare import read_decisions
from gpuwatch.cli.exit_codes import Exit
from gpuwatch.comparing import checkouts
from gpuwatch.config.paths import ensure_state_folder
from gpuwatch.diff.counter_permission import Asked, read_permission
from gpuwatch.diff.explain_diff import simulate_diff
from gpuwatch.diff.launch_geometry import read_launch
from gpuwatch.diff.render_diff import as_markdown, as_text
from gpuwatch.diff.run_diff import Diff, DiffRequest, run_diff
from gpuwatch.diff.sides import Side, is_side, read_sides
from gpuwatch.diff.static_comparison import Language
from gpuwatch.diff.watched_files import wait_for_change
from gpuwatch.errors import UsageError

_COUNTERS_HELP = "Counters of the hardware: ncu where permitted, else GPM; require: fail without any."
_SCALES = {"k": 1024, "m": 1024**2, "g": 1024**3}


class _WithCompilerFlags(click.Command):
    """A command whose words after ``--`` are flags for the compiler, and never sides."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta["gpuwatch.compiler_flags"] = tuple(args[place + 1 :])
        for word in args[:place]:
            if word.startswith("-") and is_side(word):
                raise UsageError(f"{word}: expected a name that does not begin with a dash; write it as ./{word}")
        return super().parse_args(ctx, args[:place])


@dataclass(frozen=True, slots=True)
class _DiffOptions:
    """The options of the comparison itself, as click hands them over."""

    fn: str | None
    takes_all: bool
    revision: str | None
    arch: str | None
    flags_a: str | None
    flags_b: str | None
    launch: str | None
    shapes: tuple[str, ...]
    types: tuple[str, ...]
    no_check: bool


@dataclass(frozen=True, slots=True)
class _ScreenOptions:
    """The options of what is shown, and where."""

    shows_sass: bool
    shows_ptx: bool
    verbose: bool
    as_markdown: bool
    json_file: str | None


@dataclass(frozen=True, slots=True)
class _ResultOptions:
    """The options of what is read beside the times, and of what the answer leads to."""

    counters: Asked
    fail_on: str | None
    html_file: Path | None
    watch: bool


@click.command("diff", cls=_WithCompilerFlags, short_help="Two kernels: registers, occupancy, PTX and SASS side by side.")
@click.argument("sides", nargs=-1, metavar="A [B] [-- FLAGS]", required=True)
@click.option("--fn", metavar="NAME[=NAME2]", help="The kernel to compare, and the other side's if its name differs.")
@click.option("--all", "takes_all", is_flag=True, help="Every kernel that both sides have.")
@click.option("--at", "revision", metavar="REV", help="Compare one file with this git revision of it. Default: HEAD.")
@click.option("--arch", metavar="SM", help="The architecture to compile for, as sm_90. Default: a cubin's, else sm_90.")
@click.option("--flags-a", metavar="FLAGS", help="Flags for A's compiler alone, beside those after --.")
@click.option("--flags-b", metavar="FLAGS", help="Flags for B's compiler alone.")
@click.option("--launch", metavar="TEXT", help="The launch: 'grid=64 block=256 smem=4096'; each part may be left out.")
@click.option("--shape", "shapes", metavar="NAME=N", multiple=True, help="An integer parameter, as n=1M. May be repeated.")
@click.option("--dtype", "types", metavar="NAME=TYPE", multiple=True, help="The type of a Triton parameter, as x_ptr=*fp16.")
@click.option("--no-check", is_flag=True, help="Compare the code of kernels that take different arguments, too.")
@click.option("--sass", "shows_sass", is_flag=True, help="Show the differing SASS, with lines of the source.")
@click.option("--ptx", "shows_ptx", is_flag=True, help="Show the differing PTX.")
@click.option("--verbose", "-v", is_flag=True, help="List every class of instructions that differs.")
@click.option(
    "--counters", type=click.Choice(["auto", "off", "ncu", "require"]), default="auto", show_default=True, help=_COUNTERS_HELP
)
@click.option("--fail-on", metavar="DECISIONS", help="Exit 1 if a decision is among these, as slower,incomparable.")
@click.option("--output", "-o", "html_file", type=click.Path(path_type=Path), metavar="FILE", help="Write an HTML report.")
@click.option("--watch", is_flag=True, help="Compare again whenever a file of a side changes.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown, for a pull request.")
@click.option(
    "--json", "json_file", metavar="FILE", help="Write JSON to this file, whose name ends in .json; - is standard output."
)
@options.settings_options
@options.gathered(_ResultOptions, "result")
@options.gathered(_ScreenOptions, "screen")
@options.gathered(_DiffOptions, "how")
@click.pass_context
def command(
    context: click.Context, sides: tuple[str, ...], how: _DiffOptions, screen: _ScreenOptions, result: _ResultOptions
) -> Exit:
    """Compare kernel B with kernel A: by their compiled code and, on a GPU, by their times and counters.

    \b
    gpuwatch diff naive.cu tiled.cu                two files with a kernel of the same name each
    gpuwatch diff scan.cu --fn inclusive=exclusive two kernels: A of the committed file, B of the file as it stands
    gpuwatch diff kernel.cu                        a file against its last commit; --at REV against another revision
    gpuwatch diff a.cu b.py:softmax                CUDA against Triton; x.cubin and x.ptx are sides, too
    gpuwatch diff lib@v1.0:src/k.cu src/k.cu       a revision of a local repository, or of one at an https:// address
    gpuwatch diff a.cu b.cu -- -O3 -I include      flags for the compiler
    gpuwatch diff a.cu b.cu --source simulated     the whole screen, with invented times

    Needs no GPU: pip install 'gpuwatch-validity[diff]' brings compiler and disassembler.  A file with host code needs nvcc.
    """
    json_file = _check_json(screen.json_file)
    if result.html_file is not None:
        output.check_file(result.html_file)
    failing = read_decisions(result.fail_on)
    request = _request(how, context.meta["gpuwatch.compiler_flags"])
    while True:
        with checkouts.cleaned_up():
            named = read_sides(sides, how.revision)
            found = _compare(named, request, result)
        _show(found, screen, json_file, result.html_file)
        if not result.watch:
            return Exit.FAILED if any(each.timed.decision.lower() in failing for each in found.explained) else Exit.OK
        output.say("waiting for a change of these files; Ctrl-C ends it")
        wait_for_change([side.path for side in named], threading.Event())


def _compare(sides: tuple[Side, Side], request: DiffRequest, result: _ResultOptions) -> Diff:
    settings = options.settings(scenes=False)
    kind, _, scene = settings.source.partition(":")
    if kind == "simulated" and scene != "h200":  # which every simulated GPU is
        options.settings()
    ensure_state_folder(settings.state)
    found = run_diff(sides, request, settings.state, why_not_timed=_why_not_timed())
    if kind == "simulated":
        return simulate_diff(found)
    if result.counters in ("ncu", "require"):
        read_permission().choose(result.counters, has_gpm=False)
    return found


def _show(found: Diff, screen: _ScreenOptions, json_file: Path | None, html_file: Path | None) -> None:
    shown: list[Language] = [*(["sass"] if screen.shows_sass else []), *(["ptx"] if screen.shows_ptx else [])]  # type: ignore[list-item]
    if json_file != Path("-"):
        text = as_markdown(found, shown) if screen.as_markdown else as_text(found, shown, is_whole=screen.verbose)
        # Names in a source are anybody's: they must not steer this terminal.
        output.emit("\n".join(plain(line) for line in text.split("\n")))
    _write_json(found.to_dict(), json_file)
    if html_file is not None:
        from gpuwatch.diff.diff_page import render_page

        output.write_file(html_file, render_page(found, secrets.token_urlsafe(16)).encode())


def _request(how: _DiffOptions, flags: tuple[str, ...]) -> DiffRequest:
    if how.arch is not None and not (how.arch.startswith("sm_") and how.arch[3:].rstrip("af").isdecimal()):
        raise UsageError(f"--arch: expected an architecture such as sm_90, found {how.arch!r}")
    if how.takes_all and how.fn is not None:
        raise UsageError("--all: expected no --fn with it, found one")
    own = [_words(option, text) for option, text in (("--flags-a", how.flags_a), ("--flags-b", how.flags_b))]
    return DiffRequest(
        fn=how.fn,
        takes_all=how.takes_all,
        checks_signatures=not how.no_check,
        arch=how.arch,
        flags=((*flags, *own[0]), (*flags, *own[1])),
        launch=read_launch(how.launch),
        sizes=dict(_size(text) for text in how.shapes),
        types=dict(_named("--dtype", text) for text in how.types),
    )


def _words(option: str, text: str | None) -> list[str]:
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise UsageError(f"{option}: expected words as a shell reads them, found {text!r}: {error}") from error


def _named(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals and value):
        raise UsageError(f"{option}: expected NAME=VALUE, found {text!r}")
    return name, value


def _size(text: str) -> tuple[str, int]:
    name, value = _named("--shape", text)
    scale = _SCALES.get(value[-1].lower(), 1)
    digits = value if scale == 1 else value[:-1]
    if not digits.isdecimal() or int(digits) == 0:
        raise UsageError(f"--shape: expected a size such as n=1M, found {text!r}")
    return name, int(digits) * scale


def _why_not_timed() -> str:
    if not Path("/dev/nvidiactl").exists():
        return "no NVIDIA GPU on this machine"
    return "this version compares code alone"


def _check_json(named: str | None) -> Path | None:
    """Return the file for JSON.  Raises UsageError: for one that could be a source by mistake, or cannot be written."""
    if named is None or named == "-":
        return None if named is None else Path("-")
    if not named.endswith(".json"):
        raise UsageError(f"--json: expected a file whose name ends in .json, or -, found {named!r}")
    output.check_file(Path(named), "--json")
    return Path(named)


def _write_json(data: dict[str, Any], file: Path | None) -> None:
    if file == Path("-"):
        output.emit_json(data, sys.stdout)
    elif file is not None:
        output.write_file(file, (output.json_text({"schema": output.SCHEMA} | data, indent=2) + "\n").encode(), "--json")
