"""gpuwatch compare: two stored runs, reports or result files, or functions, also at an earlier git revision."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal

import click

from annotate.compare import decision
from annotate.compare.decision import MARGIN_RATIO, Comparison, Decision
from annotate.output import report
from annotate.output.report import plain
from annotate.user_policy import Policy
from annotate.verdict import Verdict
from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit, Stop
from gpuwatch.client.window_tags import read_tags
from gpuwatch.comparing import Compared, Loaded, checkouts, compare, load
from gpuwatch.comparing.load_variants import MODULE_PREFIX, names_function, wants_inputs
from gpuwatch.errors import GpuwatchError, UsageError

_IN_FULL_COUNT = 8
_CLOCK_HELP = "Compare windows of two cards at this SM clock. Default: the middle of both clocks, or the reference clock."


@dataclass(frozen=True, slots=True)
class _FunctionOptions:
    """The options for functions; ``revision`` is the git revision of the first function."""

    revision: str | None
    seconds: float
    own_steady: bool
    no_check: bool
    rtol: float | None
    cache: Literal["cold", "warm"] | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _RecordOptions:
    """The options for runs and files: the clock in MHz, and True to compare two GPU models as a ratio."""

    clock_mhz: float | None
    is_ratio: bool


@click.command("compare", cls=CheckedCommand, short_help="Compare two runs or functions.")
@click.argument("variants", nargs=-1, metavar="A [B...]", required=True)
@click.option("--at", "revision", metavar="REV", help="Compare a function with itself at this git revision.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.05, 3600),
    default=3.0,
    show_default=True,
    help="Measure functions for this GPU time, in seconds.",
)
@click.option(
    "--own-steady", is_flag=True, help="Also measure each function alone, at the clock its own power allows (48 s more)."
)
@click.option("--no-check", is_flag=True, help="Do not compare the functions' results.")
@click.option("--rtol", type=click.FloatRange(0, 1e6), help="Allow this relative error of results. Default: by data type.")
@click.option(
    "--cache", type=click.Choice(["cold", "warm"]), help="Give each call a cold or a warm L2 cache. Default on a GPU: cold."
)
@options.tag_option("Store this tag with the functions' window, such as team=vision. Repeatable.")
@click.option("--clock", "clock_mhz", type=options.CLOCK_MHZ, metavar="MHZ", help=_CLOCK_HELP)
@click.option("--ratio", "is_ratio", is_flag=True, help="Compare two GPU models as a ratio, each at its reference clock.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown, for a pull request or an issue.")
@click.option("--fail-on", metavar="DECISIONS", help="Exit 1 if the decision is among these. Comma-separated.")
@options.policy_options_with(
    "For functions: call a difference SAME if its intervals lie within SHARE (default 0.5%). For runs: the windows' tolerance."
)
@options.json_option
@options.settings_options
@options.gathered(_FunctionOptions, "how")
@options.gathered(_RecordOptions, "records")
def command(
    variants: tuple[str, ...],
    how: _FunctionOptions,
    records: _RecordOptions,
    policy_options: options.PolicyOptions,
    fail_on: str | None,
    as_json: bool,
    as_markdown: bool,
) -> Exit:
    """Compare B with A: FASTER, SLOWER, SAME, INCONCLUSIVE or INCOMPARABLE.

    \b
    gpuwatch compare RUN RUN2            two stored windows: conditions first, then their times
    gpuwatch compare A.html B.html       reports or capsules of any machines, label by label; also RUN B.html
    gpuwatch compare r1.json r2.json     results of NVBench, hyperfine and others, series by series
    gpuwatch compare a.py:f b.py:g       two functions, interleaved on one GPU in one process
    gpuwatch compare a.py:f a.py:g b.py:h  each other function as a percentage of the first, under Holm's correction
    gpuwatch compare a.py:f --at HEAD    a function as committed (A) and in the working tree (B)

    A function does the work of one call.  A function `inputs()` in one of the files returns the arguments, if any.  gpuwatch
    calls `inputs()` three times (with `seed=` 0, 1, 2 if it takes a seed), so that each variant runs on several buffers.
    Results must agree on all these inputs, and on those of a function `check_inputs()`.  A function named make_… returns the
    function to time, with its own buffers.  With --at, A runs in a git worktree of the revision.

    Windows of two machines, cards or boots are compared at --clock or at the middle of both windows' clocks.  If the times do
    not follow the clock, the model's reference clock is used.  The interval includes the spread between cards of the model.
    Without one clock, other hardware, other software or another boot makes two windows incomparable, unless --accept names
    the rule.
    """
    failing = read_decisions(fail_on)
    are_functions = [names_function(variant) for variant in variants]
    if how.revision is not None or any(are_functions):
        _check_functions(variants, are_functions, how.revision, replace(policy_options, tolerance=None).policy())
        if records != _RecordOptions(None, is_ratio=False):
            raise UsageError("--clock, --ratio: expected two runs or files, found functions, which share one clock")
        found = _compare_functions(variants, how, options.read_share("--tolerance", policy_options.tolerance) or MARGIN_RATIO)
        data, text = found.to_dict() | {"runs": None}, str(found).replace("own_steady=True", "--own-steady")
        comparisons: Sequence[Comparison] = found.comparisons
        verdict = found.verdict
    else:
        if how.tags:
            raise UsageError("--tag: expected functions, found runs, whose tags are already stored; leave --tag out")
        if len(variants) != 2:
            found_words = f"{len(variants)}: {' '.join(variants)}"
            raise UsageError(f"expected two runs or files, or two functions FILE.py:FUNCTION, found {found_words}")
        comparisons, runs = _compare_records((variants[0], variants[1]), records, policy_options.policy())
        data = {"design": "sequential", "timer": None, "comparisons": [each.to_dict() for each in comparisons], "verdict": None}
        data, text, verdict = data | {"runs": runs}, _listed(comparisons), None
    if as_markdown and not as_json:
        output.emit(_markdown(comparisons, verdict))
    else:
        # Labels and conditions come from untrusted programs: escape their control characters for the terminal.
        harmless = "\n".join(output.wrap(plain(line), 4) for line in text.split("\n"))
        output.emit_either(data, output.coloured(harmless, sys.stdout), as_json=as_json)
    return Exit.FAILED if failing & {each["decision"] for each in data["comparisons"]} else Exit.OK


def _compare_records(
    texts: tuple[str, str], records: _RecordOptions, policy: Policy | None
) -> tuple[Sequence[Comparison], list[str]]:
    from annotate.compare.two_machines import MachineTerms
    from gpuwatch.cli.compared_sides import compare_sides

    settings = options.settings()
    terms = MachineTerms(
        clock_mhz=records.clock_mhz,
        reference_clock_mhz=settings.complete(policy or Policy()).reference_clock_mhz,
        card_spread_ratio=settings.card_spread_ratio or None,
        is_ratio=records.is_ratio,
    )
    return compare_sides(texts, policy, terms)


def _listed(comparisons: Sequence[Comparison]) -> str:
    """Return each comparison in full, or one per line if there are many."""
    if len(comparisons) <= _IN_FULL_COUNT:
        return "\n".join(map(str, comparisons))
    rows = [
        (
            each.decision.value.upper(),
            plain(each.b),
            decision.change_text(each.ratio, uncertain=each.within_noise),
            "; ".join(each.reasons[:1]),
        )
        for each in comparisons
    ]
    return output.table(rows, header=("DECISION", "WINDOW", "TIME", "WHY (--json has all)"), width=output.width(sys.stdout))


def _markdown(comparisons: Sequence[Comparison], verdict: Verdict | None) -> str:
    parts = [decision.markdown(each) for each in comparisons]
    return "\n".join([*parts, *([report.markdown(verdict)] if verdict is not None else [])]).rstrip("\n")


def read_decisions(text: str | None) -> set[str]:
    """Read the decisions of --fail-on.

    Raises UsageError: for an unknown decision, and for none.
    """
    named = {word.strip().lower() for word in text.split(",") if word.strip()} if text is not None else set()
    if text is not None and (not named or named - set(Decision)):
        raise UsageError(f"--fail-on: expected some of {', '.join(Decision)}, found {text!r}")
    return named


def _check_functions(variants: tuple[str, ...], are_functions: list[bool], revision: str | None, policy: Policy | None) -> None:
    if policy is not None:
        raise UsageError(
            "--claim, --accept, --limit, --precision, --reference-clock: expected two runs, found functions, "
            "which no policy applies to"
        )
    if not all(are_functions):
        expected = "a function FILE.py:FUNCTION" if revision is not None or len(variants) == 1 else "two runs or two functions"
        raise UsageError(f"expected {expected}, found {' and '.join(variants)}")
    if revision is not None and len(variants) != 1:
        raise UsageError(f"--at: expected one function, to be compared with itself at {revision}, found {len(variants)}")
    if revision is None and len(variants) < 2:
        raise UsageError(f"expected two functions, or one with --at REV, found {len(variants)}")


def _compare_functions(variants: tuple[str, ...], how: _FunctionOptions, tolerance_ratio: float) -> Compared:
    """Compare functions.  Raises Stop: when a function raises, after printing the function's part of the traceback."""
    try:
        with checkouts.cleaned_up() if how.revision is not None else nullcontext():
            return _run_functions(variants, how, tolerance_ratio)
    except Exception as error:
        theirs = _own_part(error.__traceback__)
        if theirs is None or isinstance(error, GpuwatchError):
            raise
        output.say("".join(traceback.format_exception(type(error), error, theirs)).rstrip())
        raised = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise Stop(Exit.FAILED, f"expected functions that return, found one that raises {raised}", "function") from error


def _run_functions(variants: tuple[str, ...], how: _FunctionOptions, tolerance_ratio: float) -> Compared:
    loaded = [load(variants[0], at=how.revision)]
    loaded += [load(each) for each in (variants if how.revision is not None else variants[1:])]
    calls: dict[str, Callable[..., object]] = {}
    for each in loaded:
        name = each.name
        while name in calls:
            name += " again"
        calls[name] = each.call
    try:
        return compare(
            calls,
            inputs=_inputs(loaded),
            seconds=how.seconds,
            own_steady=how.own_steady,
            check=not how.no_check,
            settings=options.settings(),
            say=output.say,
            tolerance=tolerance_ratio,
            cache=how.cache,
            tags=read_tags(how.tags),
            rtol=how.rtol,
            check_inputs=next((each.check_inputs for each in loaded if each.check_inputs is not None), ()),
        )
    except SystemExit as error:  # uncaught, sys.exit would end this command silently, with any code
        raise UsageError(
            f"{' and '.join(calls)}: expected functions that return, found one that calls sys.exit({error.code!r})"
        ) from error


def _inputs(loaded: Sequence[Loaded]) -> Any:  # arguments of any kind
    """Return the function that makes inputs; an empty tuple if no function takes arguments.

    Raises UsageError: without a function inputs(), and if only some functions take arguments.
    """
    wanting = [each for each in loaded if wants_inputs(each.call)]
    if not wanting:
        return ()
    maker = next((each.inputs for each in loaded if each.inputs is not None), None)
    if maker is None:
        file = wanting[0].name.rpartition(":")[0]
        raise UsageError(
            f"{wanting[0].name} takes arguments: expected a function inputs() in {file} that returns them, found none"
        )
    if len(wanting) < len(loaded):
        other = next(each.name for each in loaded if each not in wanting)
        raise UsageError(
            f"{wanting[0].name} and {other}: expected functions that take the same arguments, found that the second takes none"
        )
    return maker


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that starts in a variant's code; None if no frame does."""
    while trace is not None and not str(trace.tb_frame.f_globals.get("__name__")).startswith(MODULE_PREFIX):
        trace = trace.tb_next
    return trace
