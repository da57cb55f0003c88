"""gpuwatch compare: two stored runs, or two functions, of which one may be an earlier revision of the other."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import click

from annotate.compare.decision import MARGIN_RATIO, Comparison, Decision
from annotate.evidence import Evidence
from annotate.output.report import plain
from annotate.user_policy import Policy
from gpuwatch.cli import open_store, options, output, rejudge
from gpuwatch.cli.exit_codes import Exit, Stop
from gpuwatch.comparing import Compared, Loaded, checkouts, compare, load
from gpuwatch.comparing.load_variants import MODULE_PREFIX, names_function, wants_inputs
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.interfaces import Run

if TYPE_CHECKING:
    from gpuwatch.store import Reader


@dataclass(frozen=True, slots=True)
class _FunctionOptions:
    """The options of comparing functions; ``revision`` is the git revision of the first of two."""

    revision: str | None
    seconds: float
    own_steady: bool
    no_check: bool
    rtol: float | None
    cache: Literal["cold", "warm"] | None


@click.command("compare", short_help="Two runs, or two functions: faster, slower, the same, or not comparable.")
@click.argument("variants", nargs=-1, metavar="A [B...]", required=True)
@click.option("--at", "revision", metavar="REV", help="Compare a working file's function with this git revision of it.")
@click.option("--seconds", type=click.FloatRange(0.05, 3600), default=3.0, show_default=True, help="GPU time of functions.")
@click.option("--own-steady", is_flag=True, help="Also each function alone, at the clock its own power allows (48 s more).")
@click.option("--no-check", is_flag=True, help="Do not compare the functions' results.")
@click.option("--rtol", type=click.FloatRange(0, 1e6), help="Largest relative error of results. Default: their data type's.")
@click.option("--cache", type=click.Choice(["cold", "warm"]), help="L2 cache that each call finds. Default on a GPU: cold.")
@click.option("--fail-on", metavar="DECISIONS", help="Exit 1 if the decision is among these. Comma-separated.")
@options.policy_options_with("Differences of functions inside it are none (0.5% by default); of runs as of windows.")
@options.json_option
@options.settings_options
@options.gathered(_FunctionOptions, "how")
def command(
    variants: tuple[str, ...], how: _FunctionOptions, policy_options: options.PolicyOptions, fail_on: str | None, as_json: bool
) -> Exit:
    """Compare B with A: FASTER, SLOWER, SAME, INCONCLUSIVE or INCOMPARABLE.

    \b
    gpuwatch compare RUN RUN             two stored windows: conditions first, then their times
    gpuwatch compare a.py:f b.py:g       two functions, interleaved on one GPU in one process
    gpuwatch compare a.py:f a.py:g b.py:h  each other function as a percentage of the first, under Holm's correction
    gpuwatch compare a.py:f --at HEAD    a function as committed (A) and as it stands (B)

    A function does one call.  If it takes arguments, the first file's function `inputs()` returns them, asked three times
    (with `seed=` 0, 1, 2 if it takes one), so that each variant runs on several buffers.  Results must agree on all of them
    and on the sets that a function `check_inputs()` returns, as of other sizes.  A function named make_… returns a
    function of one call with its own buffers.  With --at, the first function runs on a git worktree of that revision: modules
    it imports and files beside it are the revision's.

    Other hardware, software or another boot makes two runs incomparable, unless --accept names the rule.
    """
    failing = _failing(fail_on)
    are_functions = [names_function(variant) for variant in variants]
    if how.revision is not None or any(are_functions):
        _check_functions(variants, are_functions, how.revision, replace(policy_options, tolerance=None).policy())
        found = _compare_functions(variants, how, options.read_share("--tolerance", policy_options.tolerance) or MARGIN_RATIO)
        data, text = found.to_dict() | {"runs": None}, str(found)
    else:
        if len(variants) != 2:
            found_words = f"{len(variants)}: {' '.join(variants)}"
            raise UsageError(f"expected two runs, or two functions FILE.py:FUNCTION, found {found_words}")
        with open_store.reader(options.settings()) as store:
            runs = (open_store.run(store, variants[0]), open_store.run(store, variants[1]))
            compared = _compare_runs(store, *runs, policy_options.policy())
        data = {"design": "sequential", "timer": None, "comparisons": [compared.to_dict()], "verdict": None}
        data, text = data | {"runs": [run.id for run in runs]}, str(compared)
    # Any program may have declared the labels and conditions of a run: they must not steer this terminal.
    harmless = "\n".join(plain(line) for line in text.split("\n"))
    output.emit_either(data, output.coloured(harmless, sys.stdout), as_json=as_json)
    return Exit.FAILED if failing & {each["decision"] for each in data["comparisons"]} else Exit.OK


def _failing(text: str | None) -> set[str]:
    named = {word.strip().lower() for word in text.split(",") if word.strip()} if text is not None else set()
    if text is not None and (not named or named - set(Decision)):
        raise UsageError(f"--fail-on: expected some of {', '.join(Decision)}, found {text!r}")
    return named


def _check_functions(variants: tuple[str, ...], are_functions: list[bool], revision: str | None, policy: Policy | None) -> None:
    if policy is not None:
        raise UsageError(
            "--claim, --accept, --limit, --precision: expected two runs, found functions, which are compared as they are"
        )
    if not all(are_functions):
        expected = "a function FILE.py:FUNCTION" if revision is not None or len(variants) == 1 else "two runs or two functions"
        raise UsageError(f"expected {expected}, found {' and '.join(variants)}")
    if revision is not None and len(variants) != 1:
        raise UsageError(f"--at: expected one function, to be compared with itself at {revision}, found {len(variants)}")
    if revision is None and len(variants) < 2:
        raise UsageError(f"expected two functions, or one with --at REV, found {len(variants)}")


def _compare_functions(variants: tuple[str, ...], how: _FunctionOptions, tolerance_ratio: float) -> Compared:
    """Compare functions.  Raises Stop: when one raises, after its own part of the traceback was shown."""
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
            rtol=how.rtol,
            check_inputs=next((each.check_inputs for each in loaded if each.check_inputs is not None), ()),
        )
    except SystemExit as error:  # it would end this command, with whatever code, and say nothing
        raise UsageError(
            f"{' and '.join(calls)}: expected functions that return, found one that calls sys.exit({error.code!r})"
        ) from error


def _inputs(loaded: Sequence[Loaded]) -> Any:  # arguments of any kind
    """Return the function that makes inputs; nothing where no function takes any."""
    wanting = [each for each in loaded if wants_inputs(each.call)]
    if not wanting:
        return ()
    maker = next((each.inputs for each in loaded if each.inputs is not None), None)
    if maker is None:
        file = wanting[0].name.rpartition(":")[0]
        raise UsageError(f"{wanting[0].name} takes arguments: expected a function inputs() in {file} that returns them")
    if len(wanting) < len(loaded):
        other = next(each.name for each in loaded if each not in wanting)
        raise UsageError(f"{wanting[0].name} takes arguments and {other} none: expected both to take the same")
    return maker


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the variants' own code."""
    while trace is not None and not str(trace.tb_frame.f_globals.get("__name__")).startswith(MODULE_PREFIX):
        trace = trace.tb_next
    return trace


def _compare_runs(store: Reader, a: Run, b: Run, policy: Policy | None) -> Comparison:
    from annotate.compare.two_runs import of_runs

    uuid = next((uuid for uuid in a.uuids if uuid in b.uuids), None)
    pieces = (_evidence(store, a, uuid), _evidence(store, b, uuid))
    return of_runs(*pieces, rejudge.policy_of(b) if policy is None else policy, names=_names(a, b))


def _evidence(store: Reader, run: Run, uuid: str | None) -> Evidence:
    if not run.uuids:
        raise UsageError(f"run {run.id}: expected a window on a GPU, found one without: {run.why or run.status}")
    return store.evidence(run, uuid or run.uuids[0])


def _names(a: Run, b: Run) -> tuple[str, str]:
    """Return the labels where they distinguish the runs, else labels with ids."""
    if a.label and b.label and a.label != b.label:
        return a.label, b.label
    return (f"{a.label or 'run'} {a.id}", f"{b.label or 'run'} {b.id}")
