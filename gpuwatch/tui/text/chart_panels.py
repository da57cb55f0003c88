"""The curves of one GPU as lines of text: the signals, their limits, and the height of each."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from annotate.evidence import SIGNALS, Column, Device, Lane, Trace
from gpuwatch.tui.text import plot
from gpuwatch.tui.text.words import NOTHING, Piece, Tone, clip_pieces, span

DENSE_HOLDS_NS = 100_000_000  # five samples of the record: a longer pause is a gap, and sampled power fills it
PROCESS_LIST_HOLDS_NS = 11_000_000_000  # longer than the slow lane's usual period
MOST_ROWS_COUNT = 16  # more lines add nothing to a curve
AT_LIMIT_RATIO = 0.98  # this and NEAR_C: as in the table of all GPUs
NEAR_C = 5.0


@dataclass(frozen=True, slots=True)
class Panel:
    """One curve: its signal, its unit, and its reference line."""

    title: str
    signal: str
    unit: str
    least: float  # the least range, so that noise does not look like a step
    line: str | None = None  # name of a field of the device
    line_name: str = ""
    percent: bool = False


CLOCK = Panel("SM clock", "sm_clock_mhz", "MHz", 300.0, "sm_clock_max_mhz", "max")
POWER = Panel("power", "power_w", "W", 50.0, "power_limit_w", "limit")
TEMPERATURE = Panel("temperature", "temperature_c", "°C", 10.0, "temperature_slowdown_c", "slow-down")
MEAN_POWER = "power_average_w"
UTILISATION = Panel("utilisation", "utilization_ratio", "%", 100.0, percent=True)
PANELS = (CLOCK, POWER, TEMPERATURE, UTILISATION)  # the most important first


def rows_counts(height: int) -> list[int]:
    """Return each panel's number of curve lines below the title; a small screen shows only the first panels."""
    shown = min(len(PANELS), (max(height, 0) + 1) // 5)  # four lines each, without the title; the last one may get three
    if not shown:
        return []
    each, over = divmod(height - shown, shown)
    return [min(each + (position < over), MOST_ROWS_COUNT) for position in range(shown)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelData:
    """The data of a panel: one GPU's trace over a span of cells, the moment of its numbers, and a marked cell."""

    trace: Trace
    device: Device
    cells: plot.Span
    moment_ns: int
    cursor: int | None
    held: plot.Tones  # for the clock: the gravity of each cell's reasons


def lines(panel: Panel, of: PanelData, rows_count: int) -> Iterator[list[Piece]]:
    """Draw a title with the moment's numbers, and the curve."""
    found, dense = _band(panel, of)
    line = getattr(of.device, panel.line) if panel.line is not None else None
    yield _title(panel, of, found, line, dense=dense)
    ends = found.ends()
    low, high = ends if ends is not None else (0.0, line or panel.least)
    if line is not None:
        low, high = min(low, line), max(high, line)
    if panel.percent:
        low, high = min(low, 0.0), max(high, 100.0)
    scale = plot.scale(low, high, least=panel.least, ticks_count=rows_count // 2)
    yield from plot.lines(found, scale, rows_count, plot.PlotStyle(_tones(panel, of, found.paired(), line), line, of.cursor))


def clip_trace(trace: Trace, begin_ns: int, end_ns: int) -> Trace:
    """Return the part of a trace inside the range, and values that are valid at its start, without values in the gaps."""

    def part(column: Column, lane: Lane) -> Column:
        rows = slice(*np.searchsorted(column.at_ns, [begin_ns - plot.HOLDS_NS, end_ns]))
        gaps = [
            gap for gap in trace.gaps if gap.lane == lane and gap.end_ns > begin_ns - plot.HOLDS_NS and gap.begin_ns < end_ns
        ]
        return plot.without(Column(column.at_ns[rows], column.values[rows]), gaps)

    at_ns = attrgetter("at_ns")
    first = bisect_left(trace.process_lists, begin_ns - PROCESS_LIST_HOLDS_NS, key=at_ns)
    return replace(
        trace,
        columns={name: part(column, SIGNALS[name]) for name, column in trace.columns.items()},
        dense_power=part(trace.dense_power, Lane.POWER),
        process_lists=trace.process_lists[first : bisect_left(trace.process_lists, end_ns, key=at_ns)],
    )


def _band(panel: Panel, of: PanelData) -> tuple[plot.Band, bool]:
    """Return the signal over the dots of the span, and True if it contains the driver's dense record."""
    dots = of.cells.dots()
    found = plot.band(of.trace.column(panel.signal), dots)
    if panel is not POWER:
        return (plot.Band(found.low * 100.0, found.high * 100.0), False) if panel.percent else (found, False)
    if not np.isfinite(found.low).any():
        found = plot.band(of.trace.column(MEAN_POWER), dots)  # the only power signal of some logs of nvidia-smi
    dense = plot.band(of.trace.dense_power, dots, holds_ns=DENSE_HOLDS_NS)
    return dense.over(found), bool(np.isfinite(dense.low).any())


def _title(panel: Panel, of: PanelData, found: plot.Band, line: float | None, *, dense: bool) -> list[Piece]:
    value, exact = value_at(panel, of.trace, of.moment_ns)
    if value is None:
        shown = Piece(NOTHING, Tone.DIM)
    else:
        shown = Piece(f"{value:.0f} {panel.unit}" + (f" {value / line:.0%}" if line and panel in (CLOCK, POWER) else ""))
    pieces = [Piece(f" {panel.title:<12}"), shown]
    if line is not None:
        pieces.append(Piece(f"  {plot.LINE}{plot.LINE} {panel.line_name} {line:.0f}", Tone.DIM))
    if of.cursor is not None and value is not None:
        low, high = found.low[2 * of.cursor : 2 * of.cursor + 2], found.high[2 * of.cursor : 2 * of.cursor + 2]
        if np.isfinite(low).any() and np.nanmax(high) - np.nanmin(low) >= 1:
            about = f"  {np.nanmin(low):.0f}–{np.nanmax(high):.0f} in its {span(of.cells.slice_ns / 1e9)}"
            pieces.append(Piece(about, Tone.DIM))
    elif (ends := found.ends()) is not None and ends[1] - ends[0] >= 1:
        pieces.append(Piece(f"  {ends[0]:.0f}–{ends[1]:.0f} in view", Tone.DIM))
    if dense:
        pieces.append(Piece("  20 ms record" if exact or of.cursor is None else "  20 ms record, sampled here", Tone.DIM))
    return clip_pieces(pieces, of.cells.slices_count + plot.GUTTER_COUNT)


def value_at(panel: Panel, trace: Trace, at_ns: int) -> tuple[float | None, bool]:
    """Return the valid value at a moment, or None, and True if the value comes from the dense record."""
    if panel is POWER and (value := _in_force(trace.dense_power, at_ns, DENSE_HOLDS_NS)) is not None:
        return value, True
    value = _in_force(trace.column(panel.signal), at_ns, plot.HOLDS_NS)
    if panel is POWER and value is None:
        value = _in_force(trace.column(MEAN_POWER), at_ns, plot.HOLDS_NS)
    return (value * 100.0 if value is not None and panel.percent else value), False


def _in_force(of: Column, at_ns: int, holds_ns: int) -> float | None:
    index = int(np.searchsorted(of.at_ns, at_ns, side="right")) - 1
    if index < 0 or at_ns - of.at_ns[index] > holds_ns or not np.isfinite(of.values[index]):
        return None
    return float(of.values[index])


def _tones(panel: Panel, of: PanelData, cells: plot.Band, line: float | None) -> plot.Tones:
    """Return each cell's tone, by the thresholds of the table of all GPUs; reasons set the clock's tone."""
    plain = plot.plain_tones(of.cells.slices_count)
    if panel is CLOCK:
        return of.held
    if line is None:
        return plain
    if panel is POWER:
        return plot.toned(plain, cells.high >= AT_LIMIT_RATIO * line, Tone.WARN)
    return plot.toned(plot.toned(plain, cells.high >= line - NEAR_C, Tone.WARN), cells.high >= line, Tone.BAD)
