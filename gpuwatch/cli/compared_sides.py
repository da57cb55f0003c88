"""The two sides of `gpuwatch compare`: stored runs, reports, capsules, and result files of other tools."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from annotate.compare.decision import Comparison
from annotate.compare.two_machines import MachineTerms
from annotate.errors import AnnotateError
from annotate.evidence import Evidence
from annotate.output.report import plain
from annotate.user_policy import Policy
from gpuwatch.cli import open_store, options, rejudge
from gpuwatch.errors import UsageError
from gpuwatch.interfaces import Run
from gpuwatch.results.readers import is_result, read_results

if TYPE_CHECKING:
    from gpuwatch.store import Reader

_SERIAL, _HOST = "serial", "host"  # the kinds of redacted names that distinguish cards and machines
_LISTED_COUNT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedWindow:
    """A window with its evidence and policy; ``stated_s`` is the mean that a result file states."""

    name: str
    evidence: Evidence
    policy: Policy
    stated_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """The windows of one argument: one for a run, one or more for a file.

    ``is_identified`` is false for a report with redacted serial numbers or host names: other reports have equal placeholders.
    The field is also false for a result file of another tool, which names no card.
    """

    text: str
    windows: tuple[ComparedWindow, ...]
    run_id: str | None = None
    is_identified: bool = True
    is_result: bool = False


def is_file(text: str) -> bool:
    """Return True if an argument names a file: run ids contain neither a dot nor a slash."""
    return "." in text or "/" in text


def compare_sides(texts: tuple[str, str], policy: Policy | None, terms: MachineTerms) -> tuple[list[Comparison], list[str]]:
    """Return the comparisons of two runs or files, and the ids of the runs.

    Files of several windows are compared label by label.

    Raises UsageError, StoreError: when a run or file cannot be read, or no windows can be paired.
    """
    sides = _read_sides(texts)
    terms = replace(terms, is_identified=all(side.is_identified for side in sides))
    if results := [side.text for side in sides if side.is_result]:
        terms = replace(terms, unidentified=f"no card is named in {' and '.join(dict.fromkeys(results))}")
    found = [_compare(a, b, policy, terms) for a, b in _paired(*sides)]
    if results:
        unseen = f"no telemetry in {' and '.join(dict.fromkeys(results))}: the bounds exclude disturbances of these times"
        found = [replace(each, reasons=(*each.reasons, unseen)) for each in found]
    return found, [side.run_id for side in sides if side.run_id is not None]


def _read_sides(texts: tuple[str, str]) -> tuple[ComparedSide, ComparedSide]:
    files = [_from_file(text) if is_file(text) else None for text in texts]
    a, b = files
    if a is not None and b is not None:
        return a, b
    with open_store.reader(options.settings()) as store:
        runs = [open_store.run(store, text) if file is None else None for text, file in zip(texts, files, strict=True)]
        if runs[0] is not None and runs[1] is not None and runs[0].id == runs[1].id:
            raise UsageError(f"expected two runs, found run {runs[0].id} twice")
        # Compare two runs on the first GPU that both used.
        uuids = [run.uuids for run in runs if run is not None]
        shared = next((uuid for uuid in uuids[0] if uuid in uuids[-1]), None)
        found = [file or _of_run(store, run, shared) for file, run in zip(files, runs, strict=True) if file or run]
    return found[0], found[1]


def _of_run(store: Reader, run: Run | None, uuid: str | None) -> ComparedSide:
    if run is None:
        raise UsageError("expected a run or a file, found neither")
    if not run.uuids:
        raise UsageError(f"run {run.id}: expected a window on a GPU, found one without a GPU: {run.why or run.status}")
    window = ComparedWindow(
        name=run.label or f"run {run.id}", evidence=store.evidence(run, uuid or run.uuids[0]), policy=rejudge.policy_of(run)
    )
    return ComparedSide(text=run.id, windows=(window,), run_id=run.id)


def _from_file(text: str) -> ComparedSide:
    """Read a report, result file or recording.  Raises UsageError: when the file is none of these, or holds no evidence."""
    path, is_of_tool = Path(text), False
    if _is_page(path):
        from gpuwatch.report import read_page

        held = read_page.load(path).record
        windows = tuple(
            ComparedWindow(name=_named(window.evidence), evidence=window.evidence, policy=_policy(window.verdict.policy))
            for window in held.windows
            if window.evidence is not None
        )
        is_identified = not {_SERIAL, _HOST} & set(held.redacted)
    elif is_result(path):
        windows = tuple(
            ComparedWindow(name=plain(each.name), evidence=each.evidence(), policy=Policy(), stated_s=each.figures.get("mean"))
            for each in read_results(path).series
        )
        is_identified, is_of_tool = False, True
    else:
        windows = tuple(
            ComparedWindow(name=_named(each), evidence=each, policy=Policy()) for each in rejudge.recorded(path, None, None, ())
        )
        is_identified = True
    if not windows:
        raise UsageError(f"{path}: expected a window with its evidence, found none")
    return ComparedSide(text=path.name, windows=windows, is_identified=is_identified, is_result=is_of_tool)


def file_windows(text: str) -> tuple[ComparedWindow, ...]:
    """Return the windows of a report, result file or recording.

    Raises UsageError: for any other file, and for a file without evidence.
    """
    return _from_file(text).windows


def _is_page(path: Path) -> bool:
    """Return True if a file starts as an HTML page; False for an unreadable file, which the recording reader reports."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(256).lstrip().lower().startswith(b"<!doctype html")
    except OSError:
        return False


def _policy(data: object) -> Policy:
    try:
        return Policy.from_dict(data)  # type: ignore[arg-type]
    except AnnotateError:  # a policy of a version with other rules or limits
        return Policy()


def _named(evidence: Evidence) -> str:
    return plain(evidence.window.label or "unnamed window")


def _paired(a: ComparedSide, b: ComparedSide) -> list[tuple[ComparedWindow, ComparedWindow]]:
    """Pair two single windows whatever their names, else windows of one label.  Raises UsageError: for no or unclear pairs."""
    if len(a.windows) == len(b.windows) == 1:
        return [_with_distinct_names(a, b, a.windows[0], b.windows[0])]
    counts = [Counter(window.name for window in side.windows) for side in (a, b)]
    names = [name for name in counts[0] if name in counts[1]]
    if not names:
        labels = [", ".join(list(count)[:_LISTED_COUNT]) for count in counts]
        raise UsageError(
            f"expected windows of the same label in both, found {labels[0]} in {a.text} and {labels[1]} in {b.text}"
        )
    for name in names:
        for side, count in zip((a, b), counts, strict=True):
            if count[name] > 1:
                expected = f"expected one window {name!r}, found {count[name]}; write a report with one run of each label"
                raise UsageError(f"{side.text}: {expected}")
    of_name = [{window.name: window for window in side.windows} for side in (a, b)]
    return [_with_distinct_names(a, b, of_name[0][name], of_name[1][name]) for name in names]


def _with_distinct_names(
    a: ComparedSide, b: ComparedSide, first: ComparedWindow, second: ComparedWindow
) -> tuple[ComparedWindow, ComparedWindow]:
    if first.name != second.name:
        return first, second
    return replace(first, name=f"{first.name} {a.text}"), replace(second, name=f"{second.name} {b.text}")


def _compare(a: ComparedWindow, b: ComparedWindow, policy: Policy | None, terms: MachineTerms) -> Comparison:
    from annotate.compare.two_runs import of_runs

    found = of_runs(a.evidence, b.evidence, b.policy if policy is None else policy, names=(a.name, b.name), terms=terms)
    if found.ratio is not None or a.stated_s is None or b.stated_s is None or not a.stated_s > 0.0:
        return found
    # Without single times, the correlation that widens a mean's interval is unknown.
    change = 100 * (b.stated_s / a.stated_s - 1.0)
    reason = f"the stated means differ by {change:+.2f} %; without single times the noise between means is unknown"
    return replace(found, a_s=a.stated_s, b_s=b.stated_s, reasons=(reason, *found.reasons))
