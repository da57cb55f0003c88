"""gpuwatch diff: two kernels compared by their code and, on a GPU, by their times."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import click
from click import option

from annotate.compare.decision import MARGIN_RATIO
from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.compare import read_decisions
from gpuwatch.cli.diff_output import ScreenOptions, check_files, show
from gpuwatch.cli.exit_codes import Exit
from gpuwatch.comparing import checkouts
from gpuwatch.config.paths import ensure_state_folder
from gpuwatch.diff.explained_pair import explain_timed, simulate_pairs
from gpuwatch.diff.fills import check_fill
from gpuwatch.diff.include_files import wait_for_change
from gpuwatch.diff.kernel_arguments import read_size
from gpuwatch.diff.launch_geometry import read_launch
from gpuwatch.diff.read_counters import Asked, read_permission
from gpuwatch.diff.run_diff import Diff, DiffRequest, TimingRequest, find_gpu, run_diff, time_diff
from gpuwatch.diff.sides import Side, is_side, read_sides
from gpuwatch.diff.timing_job import TimingTerms
from gpuwatch.errors import UsageError

_Value = TypeVar("_Value")
_COUNTERS_HELP = "Read hardware counters: with ncu if permitted, else GPM; require fails without counters."


class _WithCompilerFlags(CheckedCommand):
    """A command that passes the words after ``--`` to the compiler."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta["gpuwatch.compiler_flags"] = tuple(args[place + 1 :])
        for word in args[:place]:
            if word.startswith("-") and is_side(word):
                raise UsageError(f"{word}: expected a name that does not begin with a dash; write it as ./{word}")
        try:
            return super().parse_args(ctx, args[:place])
        except click.MissingParameter as error:
            if place == len(args):
                raise
            found = f"only compiler flags after it: {' '.join(args[place + 1 :])}"
            raise UsageError(f"diff: expected A [B] before --, found {found}; see: gpuwatch diff --help") from error


@dataclass(frozen=True, slots=True)
class _DiffOptions:
    """The options of the comparison, as click parses them, without those of the output and the timing terms."""

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
    no_time: bool
    call: str | None
    tolerance: str | None
    counters: Asked
    fail_on: str | None
    watch: bool


@click.command("diff", cls=_WithCompilerFlags, short_help="Compare two kernels: registers, occupancy, PTX and SASS.")
@click.argument("sides", nargs=-1, metavar="A [B] [-- FLAGS]", required=True)
@option("--fn", metavar="NAME[=NAME2]", help="Compare this kernel, or kernel NAME of A with NAME2 of B.")
@option("--all", "takes_all", is_flag=True, help="Compare every kernel that both sides have.")
@option("--at", "revision", metavar="REV", help="Compare one file with this git revision of it. Default: HEAD.")
@option("--arch", metavar="SM", help="Compile for this architecture. Default: a cubin's, else the GPU's, else sm_90.")
@option("--flags-a", metavar="FLAGS", help="Give A's compiler these flags, in addition to those after --.")
@option("--flags-b", metavar="FLAGS", help="Give B's compiler these flags.")
@option("--launch", metavar="TEXT", help="Launch with this geometry, such as 'grid=64 block=256 smem=4096'.")
@option(
    "--shape", "shapes", metavar="NAME=N", multiple=True, help="Set an integer parameter, such as n=1M; n=1k,1M,64M sweeps."
)
@option("--dtype", "types", metavar="NAME=TYPE", multiple=True, help="Set the type of a Triton parameter, or of T in --fn.")
@option("--no-check", is_flag=True, help="Accept differing arguments, and time without comparing results.")
@option("--no-time", is_flag=True, help="Compare the code alone, even with a GPU.")
@option("--call", metavar="TEXT", help="Call like 'k(x, x, 2.5, n)': numbers for scalars, names for buffers.")
@option(
    "--inputs",
    default="",
    metavar="FILE.py:FUNCTION",
    help="Use the arguments that this function returns, in order or by name.",
)
@option("--fill", default="randn", show_default=True, metavar="NAME", help="Fill buffers with randn, zeros, iota, or FILE.npy.")
@option("--seed", type=click.IntRange(0, (1 << 53) - 1), default=0, show_default=True, help="Seed the data with this number.")
@option("--out", "outs", metavar="NAME", multiple=True, help="Compare this buffer. Default: every buffer that may be written.")
@option("--rtol", type=click.FloatRange(0, 1e6), help="Allow this relative error of results. Default: by data type.")
@option("--cache", type=click.Choice(["cold", "warm"]), default="cold", show_default=True, help="Give each call this L2 cache.")
@option(
    "--seconds",
    type=click.FloatRange(0.05, 3600),
    default=5.0,
    show_default=True,
    help="Measure each pair for this time, in seconds.",
)
@option("--tolerance", metavar="SHARE", help="Call a difference SAME if its intervals lie within SHARE.  [default: 0.5%]")
@option("--own-clock", "has_own_clock", is_flag=True, help="Also time each side alone, at the clock its power allows (48 s).")
@option("--pipeline", "is_pipeline", is_flag=True, help="Capture each Python function's launches into a graph.")
@option("--sass", "shows_sass", is_flag=True, help="Show the differing SASS, with lines of the source.")
@option("--ptx", "shows_ptx", is_flag=True, help="Show the differing PTX.")
@option("--verbose", "-v", is_flag=True, help="List every class of instructions that differs.")
@option(
    "--counters", type=click.Choice(["auto", "off", "ncu", "require"]), default="auto", show_default=True, help=_COUNTERS_HELP
)
@option("--fail-on", metavar="DECISIONS", help="Exit 1 if a decision is among these, such as slower,incomparable.")
@option("--output", "-o", "html_file", type=click.Path(path_type=Path), metavar="FILE", help="Write an HTML report.")
@option("--watch", is_flag=True, help="Compare again whenever a file of a side changes.")
@option("--markdown", "as_markdown", is_flag=True, help="Write Markdown, for a pull request.")
@option("--json", "json_file", metavar="FILE", help="Write JSON to a file whose name ends in .json; - is standard output.")
@options.settings_options
@options.gathered(ScreenOptions, "screen")
@options.gathered(_DiffOptions, "how")
@click.pass_context
def command(context: click.Context, /, sides: tuple[str, ...], how: _DiffOptions, screen: ScreenOptions, **terms: Any) -> Exit:
    """Compare kernel B with kernel A: by their compiled code and, on a GPU, by their times and counters.

    \b
    gpuwatch diff naive.cu tiled.cu                two files with a kernel of the same name each
    gpuwatch diff scan.cu --fn inclusive=exclusive two kernels: A of the committed file, B of the working file
    gpuwatch diff kernel.cu                        a file against its last commit; --at REV against another revision
    gpuwatch diff a.cu b.py:softmax                CUDA against Triton; a side can also be x.cubin or x.ptx
    gpuwatch diff lib@v1.0:src/k.cu src/k.cu       a revision of a local repository, or of one at an https:// address
    gpuwatch diff a.cu b.cu -- -O3 -I include      flags for the compiler
    gpuwatch diff a.cu b.cu --source simulated     the whole output, with simulated times

    gpuwatch compares results before times: on three seeds and sizes, with zeros, NaN and large numbers, between guard zones.
    No GPU is needed: pip install 'gpuwatch-validity[diff]' installs compiler and disassembler.  Host code needs nvcc.
    """
    check_files(screen)
    failing = read_decisions(how.fail_on)
    request = _request(how, context.meta["gpuwatch.compiler_flags"])
    timing = _timing_request(how, terms)
    gpu = ("", "--no-time") if how.no_time else find_gpu()
    while True:
        with checkouts.cleaned_up():
            named = read_sides(sides, how.revision)
            found = _compare(named, request, timing, gpu, how.counters)
        show(found, screen)
        if not how.watch:
            return Exit.FAILED if any(each.timed.decision.lower() in failing for each in found.explained) else Exit.OK
        output.say("waiting for a file to change; Ctrl-C stops")
        wait_for_change([side.path for side in named], threading.Event())


def _compare(sides: tuple[Side, Side], request: DiffRequest, timing: TimingRequest, gpu: tuple[str, str], asked: Asked) -> Diff:
    settings = options.settings(scenes=False)
    kind, _, scene = settings.source.partition(":")
    if kind == "simulated" and scene != "h200":  # h200, the model of all simulated GPUs, is accepted too
        options.settings()
    ensure_state_folder(settings.state)
    arch, why_not = ("", "") if kind == "simulated" else gpu
    if arch:
        has_cubin = any(side.language == "cubin" for side in sides)  # a cubin fixes the architecture
        request = replace(request, arch=request.arch or (None if has_cubin else arch), takes_functions=True)
    sizes, types = timing.points[0]
    request = replace(request, sizes=sizes, types=types)
    found = run_diff(sides, request, settings.state, why_not_timed=why_not)
    if kind == "simulated":
        return replace(found, explained=simulate_pairs(found.comparisons))
    permission = read_permission()
    if not arch:
        permission.choose(asked, has_gpm=False)
        return found
    if found.arch.rstrip("af") != arch:
        return replace(found, why_not_timed=f"compiled for {found.arch}, but this GPU is {arch}")
    explain = partial(explain_timed, permission=permission, asked=asked, state=settings.state, say=output.say)
    return time_diff(sides, found, request, timing, settings.state, explain, output.say)


def _timing_request(how: _DiffOptions, terms: Mapping[str, Any]) -> TimingRequest:
    sizes = _named_values("--shape", how.shapes, read_size)
    types = _named_values("--dtype", how.types, lambda value, _: value)
    points = [
        (dict(zip(sizes, shape, strict=True)), dict(zip(types, dtype, strict=True)))
        for shape in product(*sizes.values())
        for dtype in product(*types.values())
    ]
    check_fill(terms["fill"])
    tolerance = options.read_share("--tolerance", how.tolerance) or MARGIN_RATIO
    settings = dict(options.settings(scenes=False).given)
    given = TimingTerms(**terms, sizes=points[0][0], checks=not how.no_check, tolerance=tolerance, settings=settings)
    return TimingRequest(given, how.call, tuple(points))


def _request(how: _DiffOptions, flags: tuple[str, ...]) -> DiffRequest:
    if how.arch is not None and not (how.arch.startswith("sm_") and how.arch[3:].rstrip("af").isdecimal()):
        raise UsageError(f"--arch: expected an architecture such as sm_90, found {how.arch!r}")
    if how.takes_all and how.fn is not None:
        raise UsageError("--all: expected no --fn with it, found one")
    own = [_words(name, text) for name, text in (("--flags-a", how.flags_a), ("--flags-b", how.flags_b))]
    return DiffRequest(
        fn=how.fn,
        takes_all=how.takes_all,
        checks_signatures=not how.no_check,
        arch=how.arch,
        flags=((*flags, *own[0]), (*flags, *own[1])),
        launch=read_launch(how.launch),
        checks_sizes=how.call is None,
    )


def _words(option: str, text: str | None) -> list[str]:
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise UsageError(f"{option}: expected words in shell syntax, found {text!r}: {error}") from error


def _named_values(option: str, texts: Sequence[str], read: Callable[[str, str], _Value]) -> dict[str, list[_Value]]:
    """Return the values of each text NAME=A,B by name; ``read`` gets value and text.  Raises UsageError: for other text."""
    found: dict[str, list[_Value]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not (name.isidentifier() and equals and values):
            raise UsageError(f"{option}: expected NAME=VALUE, found {text!r}")
        if name in found:
            raise UsageError(f"{option}: expected each name once, found one twice; write several values as NAME=A,B")
        found[name] = [read(value, text) for value in values.split(",")]
    return found
