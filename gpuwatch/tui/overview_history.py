"""The last two minutes of every GPU: the clock in eighths of a line, and the gravest reason of each cell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from annotate.evidence import Device, Lane, Trace, Values
from gpuwatch.tui.data_interfaces import HistorySource
from gpuwatch.tui.gpu_history import GpuHistory
from gpuwatch.tui.text import plot, reason_strip
from gpuwatch.tui.text.words import Chip, Piece, Tone
from gpuwatch.view.live import Live

RANGE_NS = 120_000_000_000
LEAST_RANGE_NS = 1_000_000_000
AROUND_NS = 60_000_000_000  # in the past a query covers more than the screen, for later steps
AGAIN_NS = 10_000_000_000  # interval of queries for the readings between two live answers
CLOCK, REASONS = "sm_clock_mhz", "event_reasons_mask"
KEPT_NS = RANGE_NS + 4 * AROUND_NS
LEAST_SPAN_RATIO = 0.02  # part of the maximum clock: the driver's steps of 15 MHz are noise
EIGHTHS = " ▁▂▃▄▅▆▇█"
BEFORE = Chip(" ", "before the first reading", Tone.DIM)


@dataclass(frozen=True, slots=True)
class HistoryLines:
    """One GPU's line of clocks and line of reasons over the same time, and the least and greatest clock."""

    clock: tuple[Piece, ...]
    reasons: tuple[Piece, ...]
    low_mhz: float = 0.0
    high_mhz: float = 0.0

    @property
    def clock_range(self) -> str:
        if self.high_mhz - self.low_mhz >= 1.0:
            return f"{self.low_mhz:.0f}–{self.high_mhz:.0f} MHz"
        return f"{self.high_mhz:.0f} MHz" if self.high_mhz else "clock"

    def with_clocks(self, mhz: Values) -> HistoryLines:
        """Return these lines with a range that includes later readings."""
        seen = mhz[~np.isnan(mhz)]
        if not len(seen) or (self.high_mhz and self.low_mhz <= seen.min() and seen.max() <= self.high_mhz):
            return self
        low = min(self.low_mhz, float(seen.min())) if self.high_mhz else float(seen.min())
        return replace(self, low_mhz=low, high_mhz=max(self.high_mhz, float(seen.max())))


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A query for one GPU's history; while the user views the past, the interval may exceed the screen."""

    uuid: str
    begin_ns: int
    end_ns: int
    at_ns: int  # the displayed moment
    is_past: bool

    def run(self, past: HistorySource) -> HistoryAnswer:
        """Read the answer; called outside the drawing thread."""
        if not self.is_past:
            return HistoryAnswer(past.trace(self.uuid, self.begin_ns, self.end_ns), self.end_ns, self.at_ns)
        span_ns = past.span_ns()
        last_ns = span_ns[1] if span_ns is not None else self.at_ns
        end_ns = max(min(self.end_ns, last_ns), self.at_ns)
        return HistoryAnswer(past.trace(self.uuid, self.begin_ns, end_ns), end_ns, max(last_ns, self.at_ns))


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """A trace, the end of the queried interval, and the newest moment."""

    trace: Trace
    end_ns: int
    now_ns: int


class OverviewHistory:
    """A few minutes of clocks and reasons of each GPU in the last live answer."""

    def __init__(self) -> None:
        self._histories: dict[str, GpuHistory] = {}
        self._drawn: dict[str, tuple[plot.Span, HistoryLines]] = {}

    def add_live(self, live: Live) -> None:
        """Add a live answer, and drop GPUs that are missing from it."""
        present = {gpu.device.uuid for gpu in live.gpus}
        self._histories = {uuid: history for uuid, history in self._histories.items() if uuid in present}
        self._drawn = {uuid: drawn for uuid, drawn in self._drawn.items() if uuid in present}
        for gpu in live.gpus:
            self.history(gpu.device.uuid).add_live(replace(gpu, process_list=None))

    def next_query(self, live: Live, *, is_past: bool) -> HistoryQuery | None:
        """Return the next query, or None if the visible range is complete."""
        begin_ns, end_ns = live.at_ns - RANGE_NS, live.at_ns
        for gpu in live.gpus:
            history = self.history(gpu.device.uuid)
            wanted = history.next_query(begin_ns, end_ns, every_ns=0 if is_past else AGAIN_NS)
            if wanted is not None:
                first_ns, last_ns = wanted
                first_ns -= AROUND_NS if is_past and first_ns == begin_ns else 0
                last_ns += AROUND_NS if is_past and last_ns == end_ns else 0
                return HistoryQuery(gpu.device.uuid, first_ns, last_ns, live.at_ns, is_past)
        return None

    def add_answer(self, query: HistoryQuery, answer: HistoryAnswer) -> None:
        lean = Trace(
            columns={name: answer.trace.columns[name] for name in (CLOCK, REASONS) if name in answer.trace.columns},
            gaps=tuple(gap for gap in answer.trace.gaps if gap.lane == Lane.FAST),
        )
        self.history(query.uuid).add_answer(lean, query.begin_ns, answer.end_ns, now_ns=answer.now_ns)
        self._drawn.pop(query.uuid, None)

    def range_ns(self, live: Live) -> int:
        """Return the length of the lines: two minutes, or less if the first reading of all GPUs is later."""
        begin_ns = live.at_ns - RANGE_NS
        first_ns = min((self.history(gpu.device.uuid).first_ns(begin_ns) for gpu in live.gpus), default=begin_ns)
        return max(live.at_ns - first_ns, LEAST_RANGE_NS)

    def lines(self, device: Device, at_ns: int, count: int, range_ns: int = RANGE_NS) -> HistoryLines:
        """Draw the ``count`` whole cells before a moment: the lines change once per cell, not at every answer.

        The range of the clocks includes the readings after the last whole cell.
        """
        slice_ns = max(range_ns // count, 1)
        end_ns = at_ns // slice_ns * slice_ns
        span, drawn = plot.Span(end_ns - count * slice_ns, end_ns, count), self._drawn.get(device.uuid)
        if drawn is None or drawn[0] != span:
            drawn = self._drawn[device.uuid] = span, draw_lines(self.history(device.uuid).trace, device, span)
        clock = self.history(device.uuid).trace.column(CLOCK)
        return drawn[1].with_clocks(clock.values[slice(*np.searchsorted(clock.at_ns, [end_ns, at_ns + 1]))])

    def history(self, uuid: str) -> GpuHistory:
        """Return the history of one GPU, empty for a new GPU."""
        return self._histories.setdefault(uuid, GpuHistory((CLOCK, REASONS), kept_ns=KEPT_NS))


def draw_lines(trace: Trace, device: Device, span: plot.Span) -> HistoryLines:
    """Draw each cell's lowest clock, scaled to the range of all readings, and gravest reason; a blank and a dash in a gap."""
    chips = reason_strip.letters(reason_strip.slices(plot.without(trace.column(REASONS), trace.gaps), span))
    clocks = plot.band(plot.without(trace.column(CLOCK), trace.gaps), span)
    low, high = clocks.ends() or (0.0, 0.0)
    span_mhz = max(high - low, LEAST_SPAN_RATIO * (device.sm_clock_max_mhz or high), 1.0)
    steps = len(EIGHTHS) - 2  # the first letter marks unobserved cells
    levels = np.nan_to_num(1.0 + np.round((clocks.low - high + span_mhz) / span_mhz * steps), nan=0.0).astype(int)
    bars = "".join(EIGHTHS[level] for level in levels.tolist())
    first = next((index for index, chip in enumerate(chips) if chip is not reason_strip.NOT_OBSERVED), 0)
    chips[:first] = [BEFORE] * first
    return HistoryLines((Piece(bars, Tone.DIM),), tuple(reason_strip.pieces(chips)), low, high)
