"""The layout of one GPU's curves and strips over one axis of time, as lines of text."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from annotate.evidence import Column, Device, Lane, ProcessList, Times, Trace, Values
from annotate.output import report
from gpuwatch.tui.text import chart_panels, plot, reason_strip
from gpuwatch.tui.text.window_coverage import is_window_on
from gpuwatch.tui.text.words import NOTHING, Chip, Piece, Tone, chips, clip_pieces, cut, status
from gpuwatch.wire.shown import Shown

ROOMY_COUNT = 20  # least height with strips for processes and windows
REASONS = "event_reasons_mask"
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)
_LABEL_COUNT = 11  # least distance of time labels, in columns
_GRAVEST = ("rejected", "flagged", "unproven", "valid", "open", "closing", "judging")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartView:
    """The chart to draw: a trace and its visible range."""

    trace: Trace
    device: Device
    begin_ns: int
    end_ns: int
    zero_ns: int  # the origin of relative times: now, or the displayed past moment
    format_time: Callable[[int], str]
    cursor_ns: int | None = None
    windows: tuple[Shown, ...] = ()
    notice: str | None = None  # the reason for missing data

    def cells(self, width: int) -> plot.Span:
        return plot.Span(self.begin_ns, self.end_ns, max(width - plot.GUTTER_COUNT, 1))


def lines(view: ChartView, width: int, height: int) -> list[list[Piece]]:
    """Draw as many lines as fit: curves, strips, the axis, and the values at the cursor."""
    view, cells = replace(view, trace=chart_panels.clip_trace(view.trace, view.begin_ns, view.end_ns)), view.cells(width)
    cursor = cells.index(view.cursor_ns) if view.cursor_ns is not None else None
    reasons = reason_strip.slices(view.trace.column(REASONS), cells)
    letters = reason_strip.letters(reasons)
    below = [_strip("reason", letters)]
    if height >= ROOMY_COUNT:
        below += [_strip("procs", _process_counts(view, cells)), _strip("window", _verdicts(view, cells))]
    below += [_axis(view, cells, cursor), clip_pieces(list(_at_cursor(view, cells, cursor, reasons)), width)]
    if view.notice is not None:
        below.append([Piece(cut(f" {report.plain(view.notice)}", width), Tone.DIM)])
    data = chart_panels.PanelData(
        trace=view.trace,
        device=view.device,
        cells=cells,
        cursor=cursor,
        moment_ns=min(view.zero_ns, view.end_ns) if cursor is None or view.cursor_ns is None else view.cursor_ns,
        held=_clock_tones(letters),
    )
    above: list[list[Piece]] = []
    for panel, rows_count in zip(chart_panels.PANELS, chart_panels.rows_counts(height - len(below)), strict=False):
        above += chart_panels.lines(panel, data, rows_count)
    return [*above, *below][: max(height, 0)]


def _strip(name: str, cells: Sequence[Chip]) -> list[Piece]:
    return [Piece(f"{name:>{plot.GUTTER_COUNT - 1}}│", Tone.DIM), *reason_strip.pieces(cells)]


def _clock_tones(letters: Sequence[Chip]) -> plot.Tones:
    """Return the clock's tone from the reasons of each cell: loud tones unchanged, quiet ones plain."""
    held = plot.plain_tones(len(letters))
    for tone in (Tone.WARN, Tone.BAD):
        held = plot.toned(held, np.array([chip.tone is tone for chip in letters], bool), tone)
    return held


def _process_counts(view: ChartView, cells: plot.Span) -> list[Chip]:
    """Return a chip for each cell: the number of processes, or F if a process was foreign to an open window."""
    rows = np.array(
        [
            (process_list.at_ns, len(process_list.processes), foreign(process_list, view.device.uuid, view.windows))
            for process_list in view.trace.process_lists
        ],
        np.int64,
    )
    at_ns, counts, foreign_counts = rows.reshape(-1, 3).T
    gaps = [gap for gap in view.trace.gaps if gap.lane == Lane.PROCESSES]

    def most(values: Times) -> Values:
        column = plot.without(Column(at_ns, values.astype(np.float64)), gaps)
        return plot.band(column, cells, holds_ns=chart_panels.PROCESS_LIST_HOLDS_NS).high

    return [
        _process_chip(count, other) for count, other in zip(most(counts).tolist(), most(foreign_counts).tolist(), strict=True)
    ]


def _process_chip(count: float, foreign_counts: float) -> Chip:
    if not np.isfinite(count):
        return reason_strip.NOT_OBSERVED
    if foreign_counts > 0:
        return Chip("F", "foreign", Tone.WARN)
    return Chip(f"{count:.0f}" if count < 10 else "+", "processes", Tone.DIM) if count else Chip("·", "none", Tone.DIM)


def foreign(process_list: ProcessList, uuid: str, windows: Sequence[Shown]) -> int:
    """Count the list's processes outside every window open on that GPU at the time; 0 if no such window has processes."""
    then = [
        each
        for each in windows
        if each.begin_ns <= process_list.at_ns and (each.end_ns is None or process_list.at_ns <= each.end_ns)
    ]
    pids = {process.pid for process in process_list.processes}
    owners = [set(each.pids) for each in then if is_window_on(each, uuid, pids)]
    return len(pids.difference(*owners)) if any(owners) else 0


def _verdicts(view: ChartView, cells: plot.Span) -> list[Chip]:
    """Return each cell's chip: the status of the worst window."""
    shown = [Chip(" ", "none", Tone.DIM)] * cells.slices_count
    edges_ns = cells.edges_ns()
    of_gpu = [window for window in view.windows if view.device.uuid in window.uuids or not window.uuids]
    for window in sorted(of_gpu, key=lambda each: _GRAVEST.index(each.status) if each.status in _GRAVEST else 0, reverse=True):
        end_ns = window.end_ns if window.end_ns is not None else view.end_ns
        first = int(np.searchsorted(edges_ns, window.begin_ns, side="right")) - 1
        last = int(np.searchsorted(edges_ns, end_ns, side="left"))
        chip = status(window.status)
        for cell in range(max(first, 0), min(last, cells.slices_count)):
            shown[cell] = chip
    return shown


def _axis(view: ChartView, cells: plot.Span, cursor: int | None) -> list[Piece]:
    """Draw the times of both ends, the steps between them, the driver's events, and the cursor."""
    count = cells.slices_count
    step_s = next((step for step in _STEPS_S if step * 1e9 / cells.slice_ns >= _LABEL_COUNT), 3600)
    text, tones = [" "] * count, [Tone.DIM] * count
    for event in view.trace.events:
        if (cell := cells.index(event.at_ns)) is not None:
            text[cell], tones[cell] = report.plain(event.kind)[:1] or "?", Tone.BAD
    if cursor is not None:
        text[cursor], tones[cursor] = "▲", Tone.NOTE
    first, last = view.format_time(view.begin_ns), view.format_time(view.end_ns)
    if count >= 2 * _LABEL_COUNT:
        _put(text, 0, first)
        _put(text, count - len(last), last)
    # A live range ends on a whole dot: labels count from that end, so that they do not move.
    zero_ns = view.end_ns if 0 <= view.end_ns - view.zero_ns < cells.slice_ns else view.zero_ns
    begin_s, end_s = (view.begin_ns - zero_ns) / 1e9, (view.end_ns - zero_ns) / 1e9
    for step in range(int(begin_s // step_s), int(end_s // step_s) + 1):
        label = _offset(step * step_s, step_s)
        middle = int((step * step_s - begin_s) * 1e9 / cells.slice_ns)
        _put(text, middle - len(label) // 2, label)
    return [
        Piece(" " * plot.GUTTER_COUNT),
        *reason_strip.pieces([Chip(letter, "", tone) for letter, tone in zip(text, tones, strict=True)]),
    ]


def _put(text: list[str], begin: int, words: str) -> None:
    """Write words if their place and the column on either side are blank."""
    around = text[max(begin - 1, 0) : begin + len(words) + 1]
    if begin >= 0 and begin + len(words) <= len(text) and set(around) <= {" "}:
        text[begin : begin + len(words)] = words


def _offset(seconds: int, step_s: int) -> str:
    """Format a distance from the moment, in the unit of the steps: 0, −90 s, −2:10, −5 min, +1 h."""
    sign, size = "−" if seconds < 0 else "+", abs(seconds)
    if not size:
        return "0"
    if step_s < 60:
        return f"{sign}{size} s" if size < 120 else f"{sign}{size // 60}:{size % 60:02}"
    return f"{sign}{size // 60} min" if size % 3600 else f"{sign}{size // 3600} h"


def _at_cursor(view: ChartView, cells: plot.Span, cursor: int | None, reasons: reason_strip.ReasonSlices) -> Iterator[Piece]:
    """Name the marked cell's reasons, processes, windows and events; without a marked cell, each reason's share of the view."""
    if cursor is None or view.cursor_ns is None:
        yield Piece(" in view", Tone.DIM)
        shares = reason_strip.shares(view.trace.column(REASONS), view.begin_ns, min(view.end_ns, view.zero_ns))
        for chip, ratio in shares.items():
            yield Piece(f"  {chip.letter} {chip.name} {ratio:.1%}", chip.tone)
        if not shares:
            yield Piece("  no reason" if reasons.seen.any() else f"  {NOTHING} reasons were not observed", Tone.DIM)
        return
    begin_ns, end_ns = (int(edge) for edge in cells.edges_ns()[cursor : cursor + 2])
    yield Piece(f" ▲ {view.format_time(view.cursor_ns)}", Tone.NOTE)
    yield Piece(_precise((view.cursor_ns - view.zero_ns) / 1e9), Tone.DIM)
    for chip in chips(reasons.mask(cursor)):
        yield Piece(f"  {chip.letter} {chip.name}", chip.tone)
    for event in view.trace.events:
        if begin_ns <= event.at_ns < end_ns:
            yield Piece(f"  {report.plain(event.kind)}{f' {event.value}' if event.value is not None else ''}", Tone.BAD)
    before = view.trace.process_lists[
        : bisect_right(view.trace.process_lists, max(view.cursor_ns, end_ns - 1), key=lambda each: each.at_ns)
    ]
    if before and view.cursor_ns - before[-1].at_ns <= chart_panels.PROCESS_LIST_HOLDS_NS:
        count = len(before[-1].processes)
        yield Piece(f"  {count} process{'' if count == 1 else 'es'}")
        if foreign_count := foreign(before[-1], view.device.uuid, view.windows):
            yield Piece(f", {foreign_count} foreign", Tone.WARN)
    for window in view.windows:
        if view.device.uuid in window.uuids and window.begin_ns < end_ns and (window.end_ns or view.end_ns) >= begin_ns:
            chip = status(window.status)
            yield Piece(f"  {chip.letter} {chip.name} {cut(report.plain(window.label or window.run), 30)}", chip.tone)


def _precise(seconds: float) -> str:
    return f" ({'−' if seconds < 0 else '+'}{abs(seconds):.3f} s)" if abs(seconds) >= 0.0005 else ""
