"""A signal over time in braille: a band from the least to the greatest value of each moment, and a gap if unobserved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from annotate.evidence import HEARTBEAT_NS, Column, Gap, Times, Values
from gpuwatch.tui.text.words import Piece, Tone

HOLDS_NS = HEARTBEAT_NS + HEARTBEAT_NS // 2  # as in evidence.Trace: a value expires after this long without a repetition
GUTTER_COUNT = 7  # columns to the left of a curve: label and axis
LINE = "╌"
CURSOR = "│"
_MOST = 1e15  # larger values are not readings, and their dots would overflow
# The dots of a braille character: four rows of two, one bit each.
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint32)
_BLANK = 0x2800
_TONES = tuple(Tone)

Tones = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Span:
    """An interval cut into equal slices: cells of a screen, or the two dot columns of each."""

    begin_ns: int
    end_ns: int
    slices_count: int

    @property
    def slice_ns(self) -> float:
        return (self.end_ns - self.begin_ns) / self.slices_count

    def dots(self) -> Span:
        return Span(self.begin_ns, self.end_ns, 2 * self.slices_count)

    def edges_ns(self) -> Times:
        return _edges_ns(self.begin_ns, self.end_ns, self.slices_count)

    def index(self, at_ns: int) -> int | None:
        """Return the slice of a moment; None outside the span."""
        if not self.begin_ns <= at_ns < self.end_ns:
            return None
        return min((at_ns - self.begin_ns) * self.slices_count // (self.end_ns - self.begin_ns), self.slices_count - 1)


@lru_cache(maxsize=8)
def _edges_ns(begin_ns: int, end_ns: int, count: int) -> Times:
    return np.array([begin_ns + (end_ns - begin_ns) * i // count for i in range(count + 1)], np.int64)


@dataclass(frozen=True, slots=True)
class Band:
    """Least and greatest value of a signal in each slice of a span; NaN if unobserved."""

    low: Values
    high: Values

    def over(self, other: Band) -> Band:
        """Return this band, filled from the other one where this one is empty."""
        nothing = np.isnan(self.low)
        return Band(np.where(nothing, other.low, self.low), np.where(nothing, other.high, self.high))

    def paired(self) -> Band:
        """Join the two dot columns of each cell."""
        low, high = self.low.reshape(-1, 2), self.high.reshape(-1, 2)
        return Band(np.fmin(low[:, 0], low[:, 1]), np.fmax(high[:, 0], high[:, 1]))

    def ends(self) -> tuple[float, float] | None:
        """Return the least and greatest of all values, or None if nothing was observed."""
        seen = ~np.isnan(self.low)
        return (float(self.low[seen].min()), float(self.high[seen].max())) if seen.any() else None


def without(column: Column, gaps: Sequence[Gap]) -> Column:
    """Return the column without values in the gaps: a value is valid again from the first row after a gap."""
    if not gaps or not len(column):
        return column
    at_ns, values = column.at_ns, column.values.copy()
    for gap in gaps:
        values[(at_ns > gap.begin_ns) & (at_ns < gap.end_ns)] = np.nan
    begins_ns = np.array([gap.begin_ns for gap in gaps], np.int64)
    places = np.searchsorted(at_ns, begins_ns, side="right")
    return Column(np.insert(at_ns, places, begins_ns), np.insert(values, places, np.nan))


def band(column: Column, span: Span, *, holds_ns: int = HOLDS_NS) -> Band:
    """Return the range of a step function in each slice: the rows in the slice, and the value at the slice's start."""
    low, high = np.full(span.slices_count, np.nan), np.full(span.slices_count, np.nan)
    if not len(column) or span.end_ns <= span.begin_ns:
        return Band(low, high)
    edges_ns = span.edges_ns()
    values = np.where(np.abs(column.values) < _MOST, column.values, np.nan)
    starts = np.searchsorted(column.at_ns, edges_ns, side="left")
    filled = np.flatnonzero(starts[1:] > starts[:-1])
    if len(filled):
        within, at = values[starts[0] : starts[-1]], starts[filled] - starts[0]
        low[filled], high[filled] = np.fmin.reduceat(within, at), np.fmax.reduceat(within, at)
    before = starts[:-1] - 1
    holds = (before >= 0) & (edges_ns[:-1] - column.at_ns[before] <= holds_ns)
    first = np.minimum(starts[:-1], len(values) - 1)
    holds &= ~((column.at_ns[first] == edges_ns[:-1]) & np.isnan(values[first]))  # the previous value ended exactly there
    carried = np.where(holds, values[before], np.nan)
    return Band(np.fmin(low, carried), np.fmax(high, carried))


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of a curve's values, and the distance of its ticks."""

    low: float
    high: float
    step: float

    def ticks(self) -> list[float]:
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [self.step * i for i in range(first, last + 1)]


def scale(low: float, high: float, *, least: float = 1.0, ticks_count: int = 3) -> Scale:
    """Return a range of at least ``least`` around these values, with about ``ticks_count`` ticks at round numbers."""
    if high - low < least:
        low, high = (0.0, least) if low >= 0 and high <= least else (high - least, high)
    fine = _nice((high - low) / 20)
    low, high = math.floor(low / fine + 1e-9) * fine, math.ceil(high / fine - 1e-9) * fine
    return Scale(low, high, _nice((high - low) / max(ticks_count, 1)))


def _nice(least: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5, times a power of ten, that is at least this number."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((power * nice for nice in (1.0, 2.0, 2.5, 5.0) if power * nice >= least * (1 - 1e-9)), power * 10.0)


def label(value: float, step: float) -> str:
    """Format a tick's number, with the decimals of its step."""
    if abs(value) >= 99_999.5:
        return f"{value:.0e}"
    decimals = next((n for n in range(3) if abs(step * 10**n - round(step * 10**n)) < 1e-6), 3)
    return f"{value:.{decimals}f}"


@dataclass(frozen=True, slots=True)
class PlotStyle:
    """The style of a curve: a tone for each cell, the value of a reference line, and a marked cell."""

    tones: Tones
    line: float | None = None
    cursor: int | None = None


def plain_tones(count: int) -> Tones:
    return np.full(count, _TONES.index(Tone.PLAIN), np.intp)


def toned(cells: Tones, where: npt.NDArray[np.bool_], tone: Tone) -> Tones:
    return np.where(where, _TONES.index(tone), cells)


def lines(of: Band, within: Scale, rows_count: int, look: PlotStyle) -> Iterator[list[Piece]]:
    """Draw a curve ``rows_count`` lines high, with an axis to its left; ``of`` has two dot columns for each cell."""
    cells_count = len(of.low) // 2
    codes = _codes(of, within, rows_count)
    line_row = _row(look.line, within, rows_count)
    marks = {row: label(tick, within.step) for tick in within.ticks() if (row := _row(tick, within, rows_count)) is not None}
    if line_row is not None and look.line is not None:
        marks[line_row] = label(look.line, 1.0 if look.line >= 10 else within.step)
    marks.setdefault(rows_count - 1, label(within.low, within.step))  # always a tick at the bottom of the range
    for row in range(rows_count):
        blank = codes[row] == _BLANK
        text = np.where(blank, ord(LINE if row == line_row else " "), codes[row])
        tone = np.where(blank, _TONES.index(Tone.DIM), look.tones)
        if look.cursor is not None and 0 <= look.cursor < cells_count:
            tone[look.cursor] = _TONES.index(Tone.NOTE)
            if blank[look.cursor]:
                text[look.cursor] = ord(CURSOR)
        axis = f"{marks.get(row, '')[: GUTTER_COUNT - 1]:>{GUTTER_COUNT - 1}}" + ("┤" if row in marks else "│")
        yield [Piece(axis, Tone.DIM), *_pieces(text, tone)]


def _row(value: float | None, within: Scale, rows_count: int) -> int | None:
    if value is None or not within.low <= value <= within.high:
        return None
    return int(_dots(np.array([value]), within, rows_count)[0]) // 4


def _dots(values: Values, within: Scale, rows_count: int) -> npt.NDArray[np.float64]:
    """Return rows of dots from the top, clipped to the box; NaN stays."""
    most = 4 * rows_count - 1
    return np.clip(np.rint((within.high - values) / (within.high - within.low) * most), 0, most)


def _codes(of: Band, within: Scale, rows_count: int) -> npt.NDArray[np.uint32]:
    top, bottom = _dots(of.high, within, rows_count), _dots(of.low, within, rows_count)
    rows = np.arange(4 * rows_count)[:, None]
    dots = (rows >= top) & (rows <= bottom)  # no dot if either is NaN
    cells = dots[:, : len(top) // 2 * 2].reshape(rows_count, 4, -1, 2)
    return np.asarray(_BLANK + np.einsum("rdcs,ds->rc", cells, _BITS), np.uint32)


def _pieces(text: npt.NDArray[np.uint32], tone: Tones) -> Iterator[Piece]:
    if not len(text):
        return
    words = text.astype("<u4").tobytes().decode("utf-32-le")
    cuts = [0, *(np.flatnonzero(np.diff(tone)) + 1).tolist(), len(words)]
    for begin, end in itertools.pairwise(cuts):
        yield Piece(words[begin:end], _TONES[tone[begin]])
