"""Judgement of other tools' result files: the times, and the telemetry of the interval."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from annotate.amount_words import duration_text
from annotate.budget import Number, NumberBudget
from annotate.evidence import Evidence, Values
from annotate.output.budget_words import cards_words
from annotate.output.report import plain
from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict, worst
from gpuwatch.cli import open_store, options, output, rejudge
from gpuwatch.cli.exit_codes import Exit, list_statuses, worst_code
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.results import request_phases
from gpuwatch.results.readers import read_results
from gpuwatch.results.result_file import ResultFile, ResultSeries, ServedRequests
from gpuwatch.results.table_results import ColumnNames

if TYPE_CHECKING:
    from gpuwatch.store import Reader

_SLACK_S = 2.0  # allowed difference of the clocks of the file's writer and of the store
_WRITTEN_WITHIN_S = 600.0  # longest time from the end of the measurement to the writing of the file
_LISTED_COUNT = 5


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """The options of result files: columns, series, and measured processes."""

    times: str | None = None
    clock: str | None = None
    begins: str | None = None
    series: str | None = None
    pids: tuple[int, ...] = ()

    @property
    def columns(self) -> ColumnNames | None:
        """Return the named columns; None without --times.

        Raises UsageError: for --clock or --begin without --times.
        """
        if self.times is None and (self.clock is not None or self.begins is not None):
            raise UsageError("--clock, --begin: expected --times with them, found none")
        return None if self.times is None else ColumnNames(self.times, self.clock, self.begins)


@dataclass(frozen=True, slots=True)
class ResultPlace:
    """The interval and GPUs that the user names for a file."""

    begin: str | None = None
    end: str | None = None
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """A result file, the stored evidence of its interval with verdicts, and the verdicts on each series alone."""

    name: str
    found: ResultFile
    pieces: Sequence[Evidence]
    unplaced: str  # the reason for missing evidence
    verdicts: Sequence[Verdict]
    alone: Sequence[tuple[ResultSeries, Verdict]]


def read(path: Path, wanted: ResultOptions) -> ResultFile:
    """Read a result file, or only the series that --series names.

    Raises UsageError: for another file, wrong column options, and a series that the file lacks.
    """
    whole = read_results(path, wanted.columns)
    found = whole.only(wanted.series)
    if wanted.series is not None and not found.series:
        names = ", ".join(repr(each.name) for each in whole.series[:_LISTED_COUNT]) or "none"
        raise UsageError(
            f"--series: expected a part of a series name in {path.name} (first series: {names}), found {wanted.series!r}"
        )
    return found


def judge_results(
    path: Path,
    wanted: ResultOptions,
    place: ResultPlace,
    policy: Policy | None,
    *,
    shown: tuple[bool, bool],
    fail_on: str | None,
) -> Exit:
    """Judge a result file, and print the answer.  ``shown`` holds two booleans: list every rule, write JSON.

    Raises StoreError, UsageError: for another file, wrong options, and a named interval or GPU without readings.
    """
    failing, (verbose, as_json) = options.fail_on(fail_on), shown
    settings = options.settings()
    chosen = settings.complete(policy or Policy())
    found = read(path, wanted)
    try:
        pieces = _place(found, path, wanted, place)
        unplaced = "" if pieces else "expected a measured process on a GPU in the file's interval, found none; give --gpu"
    except (StoreError, UsageError) as error:
        if place != ResultPlace():  # the user named an interval or a GPU
            raise
        pieces, unplaced = (), str(error)
    verdicts = rejudge.judged(pieces, chosen)
    alone = [(each, worst(rejudge.judged([each.evidence()], chosen))) for each in found.series]
    answer = _Answer(path.name, found, pieces, unplaced, verdicts, alone)
    if as_json:
        output.emit_json(_plain(answer))
    else:
        output.emit(_text(answer, verbose=verbose))
        if unplaced:
            output.say(f"gpuwatch: no telemetry: {plain(unplaced)}")
    return worst_code(list_statuses(verdicts or [verdict for _, verdict in alone]), failing)


def _place(found: ResultFile, path: Path, wanted: ResultOptions, place: ResultPlace) -> tuple[Evidence, ...]:
    """Return the stored evidence of the named or the file's interval, on the named GPUs or those with a measured process.

    Raises StoreError, UsageError: when the interval is unknown or lacks --from, or the store has no readings of that time.
    """
    only, span_ns = found.series[0] if len(found.series) == 1 else None, found.span_ns
    if place.begin is None and place.end is None and found.wall_s is None and span_ns is None:
        raise StoreError("the file has no time of measurement; measure with `gpuwatch run --times`, or give --from and --to")
    with open_store.reader(options.settings()) as store:
        begin, end = place.begin, place.end
        if begin is None and end is None:
            begin_s, end_s = found.wall_s or _wall_of_span(store, span_ns or (0, 0), (found.written_s, path.stat().st_mtime))
            begin, end = f"@{begin_s!r}", f"@{end_s!r}"
        if begin is None:
            raise UsageError("--to: expected --from with it, found none")
        pids = wanted.pids or found.pids
        pieces = rejudge.interval(store, begin, end, place.gpus, pids)
    if only is not None and only.at_ns is not None:
        pieces = tuple(replace(each, timings=only.timings()) for each in pieces)
    pieces = tuple(replace(each, window=replace(each.window, label=path.name)) for each in pieces)
    return pieces if place.gpus else tuple(each for each in pieces if _held_context(each, frozenset(pids)))


def _held_context(piece: Evidence, pids: frozenset[int]) -> bool:
    """Return True if a measured process, or any process if none is named, was on the GPU within the interval."""
    lists = [each for each in piece.trace.process_lists if each.at_ns <= piece.window.end_ns]
    inside = [each for each in lists if each.at_ns >= piece.window.begin_ns]
    # Without an open window, lists are seconds apart: the list before the interval is valid until the next.
    standing = lists[: len(lists) - len(inside)][-1:]
    found = (process for each in (*standing, *inside) for process in each.processes if process.listed)
    return any(not pids or process.pid in pids for process in found)


def _wall_of_span(store: Reader, span_ns: tuple[int, int], written: Sequence[float | None]) -> tuple[float, float]:
    """Convert a span of the monotonic clock, which restarts with each boot, to wall times.

    ``written`` holds the time of writing in seconds, by the file's content and by the file system.
    Raises StoreError: when neither is soon after the span, which then is from another boot or machine.
    """
    for written_s in (each for each in written if each is not None):
        _, written_ns = store.to_monotonic(written_s)
        if -_SLACK_S <= (written_ns - span_ns[1]) / 1e9 <= _WRITTEN_WITHIN_S:
            offset_s = written_s - written_ns / 1e9
            return span_ns[0] / 1e9 + offset_s, span_ns[1] / 1e9 + offset_s
    raise StoreError(
        f"expected times since this machine's boot that end at most {_WRITTEN_WITHIN_S:.0f} s before the file was written, "
        "found others; give the interval with --from and --to"
    )


def number_words(number: NumberBudget | None) -> str:
    """Return a duration with repeatability and, if converted, clock and interval on other cards; ``-`` for none."""
    if number is None or number.value is None:
        return "-"
    at = f" at {number.clock_mhz:.0f} MHz" if number.clock_mhz is not None else ""
    ratio = number.repeatability.ratio
    return f"{duration_text(number.value)}{at} ±{'?' if ratio is None else f'{100 * ratio:.2g} %'}{cards_words(number)}"


def _number(verdict: Verdict, name: Number) -> NumberBudget | None:
    return None if verdict.budget is None else verdict.budget.number(name)


def series_table(alone: Sequence[tuple[ResultSeries, Verdict]], width: int | None) -> str:
    """Return a table with one series per line: count, medians or the file's figures, remarks and findings."""
    rows = []
    for series, verdict in alone:
        count = len(series.took_s)
        stated = {"mean": series.figures.get("mean"), "median": series.figures.get("median")}
        summary = ", ".join(f"{name} {duration_text(value)}" for name, value in stated.items() if value is not None) or "-"
        found = [each.rule for each in verdict.causes if each.severity in ("flag", "reject") and not each.accepted]
        words = [*series.remarks, *found]
        median = number_words(_number(verdict, Number.MEDIAN)) if count else summary
        at_clock = number_words(_number(verdict, Number.MEDIAN_AT_CLOCK)) if count else "-"
        rows.append((plain(series.name), str(count), median, at_clock, plain("; ".join(words))))
    return output.table(rows, header=("SERIES", "TIMES", "MEDIAN", "AT ONE CLOCK", "FOUND IN THE TIMES"), width=width)


def _text(answer: _Answer, *, verbose: bool) -> str:
    found, alone = answer.found, [verdict for _, verdict in answer.alone]
    count = "" if found.requests is not None else f", {len(found.series)} series"
    parts = [f"{plain(found.tool)}: {plain(answer.name)}{count}", *_request_lines(answer)]
    if alone:
        parts.append(series_table(answer.alone, output.width(sys.stdout)))
    parts += [f"  the file cannot show {plain(each)}" for each in found.cannot]
    if answer.verdicts or verbose:
        shown = answer.verdicts or alone
        parts.append(output.lay_out(shown, sys.stdout, verbose=verbose, more="`-v` lists them"))
    else:
        status = worst(alone).status if alone else Status.UNPROVEN
        parts.append(f"{status.value.upper()}  not proven: nothing outside the file supports these times")
    return "\n".join(parts)


def _request_lines(answer: _Answer) -> list[str]:
    requests = answer.found.requests
    if requests is None:
        return []
    failed = f", {requests.failed_count} failed" if requests.failed_count else ""
    lines = [f"  {output.counted(len(requests.ttft_s), 'request')}{failed}"]
    for uuid, clocks_mhz in (_clocks(answer) or {"": np.full(len(requests.ttft_s), np.nan)}).items():
        for each in request_phases.phases(requests, clocks_mhz):
            clock = "clock not observed" if each.clock_mhz is None else f"SM clock {each.clock_mhz:.0f} MHz (driver's)"
            on = f", {clock} on {plain(uuid[:12])}" if uuid else ""
            lines.append(f"  {each.name}: {each.count}, time to first token {duration_text(each.ttft_s)} (median){on}")
    return lines


def _clocks(answer: _Answer) -> dict[str, Values]:
    """Return the SM clock during each request, by GPU."""
    requests = answer.found.requests
    placed = ((each.device.uuid, each.trace) for each in answer.pieces if each.device is not None)
    return {} if requests is None else {uuid: request_phases.clocks_of_requests(requests, trace) for uuid, trace in placed}


def _plain(answer: _Answer) -> dict[str, Any]:
    series = [
        {
            "name": each.name,
            "times_count": len(each.took_s),
            "calls_count": each.calls_count,
            "stated": dict(each.figures),
            "remarks": list(each.remarks),
            "verdict": verdict.to_dict(),
        }
        for each, verdict in answer.alone
    ]
    return {
        "tool": answer.found.tool,
        "file": answer.name,
        "cannot": list(answer.found.cannot),
        "not_placed": answer.unplaced or None,
        "series": series,
        "requests": None if answer.found.requests is None else _plain_requests(answer, answer.found.requests),
        "verdicts": [verdict.to_dict() for verdict in answer.verdicts],
    }


def _plain_requests(answer: _Answer, requests: ServedRequests) -> dict[str, Any]:
    clocks = _clocks(answer)
    return {
        "count": len(requests.ttft_s),
        "failed_count": requests.failed_count,
        "phases": {uuid: [asdict(each) for each in request_phases.phases(requests, mhz)] for uuid, mhz in clocks.items()},
        "ttft_s": requests.ttft_s.tolist(),
        "latency_s": requests.latency_s.tolist(),
        "begin_ns": None if requests.at_ns is None else requests.at_ns.tolist(),
        "sm_clock_mhz": {uuid: mhz.tolist() for uuid, mhz in clocks.items()},
    }
