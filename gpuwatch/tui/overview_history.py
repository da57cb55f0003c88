"""The last two minutes of every GPU, small: its clock in eighths of a line, and the gravest reason of each moment."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from annotate.evidence import Device, Lane, Trace
from gpuwatch.tui.data_interfaces import HistorySource
from gpuwatch.tui.gpu_history import GpuHistory
from gpuwatch.tui.text import plot
from gpuwatch.tui.text.plot import Span
from gpuwatch.tui.text.words import Chip, Piece, Tone
from gpuwatch.tui.widgets import reason_strip
from gpuwatch.view.live import Live

RANGE_NS = 120_000_000_000
AROUND_NS = 60_000_000_000  # back in time more is asked than shows, for the steps to come
AGAIN_NS = 10_000_000_000  # the store has readings between those that were told, and is asked so often for them
CLOCK, REASONS = "sm_clock_mhz", "event_reasons_mask"
KEPT_NS = RANGE_NS + 4 * AROUND_NS
EIGHTHS = " ▁▂▃▄▅▆▇█"
BEFORE = Chip(" ", "before the first reading", Tone.DIM)


@dataclass(frozen=True, slots=True)
class HistoryLines:
    """What shows of one GPU: two lines over the same moments."""

    clock: tuple[Piece, ...]
    reasons: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """What the past is to be asked next; back in time, more than shows."""

    uuid: str
    begin_ns: int
    end_ns: int
    at_ns: int  # the moment that shows
    past: bool

    def put(self, past: HistorySource) -> HistoryAnswer:
        """Not on the thread that draws."""
        if not self.past:
            return HistoryAnswer(past.trace(self.uuid, self.begin_ns, self.end_ns), self.end_ns, self.at_ns)
        span_ns = past.span_ns()
        last_ns = span_ns[1] if span_ns is not None else self.at_ns
        end_ns = max(min(self.end_ns, last_ns), self.at_ns)
        return HistoryAnswer(past.trace(self.uuid, self.begin_ns, end_ns), end_ns, max(last_ns, self.at_ns))


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """How far it reaches, and the newest there was then."""

    trace: Trace
    end_ns: int
    now_ns: int


class OverviewHistory:
    """Bounded: a few minutes of two signals, and only of the GPUs there are."""

    def __init__(self) -> None:
        self._tracks: dict[str, GpuHistory] = {}
        self._drawn: dict[str, tuple[Span, HistoryLines]] = {}

    def note(self, live: Live) -> None:
        """An answer of now."""
        there = {gpu.device.uuid for gpu in live.gpus}
        self._tracks = {uuid: track for uuid, track in self._tracks.items() if uuid in there}
        self._drawn = {uuid: drawn for uuid, drawn in self._drawn.items() if uuid in there}
        for gpu in live.gpus:
            self._track(gpu.device.uuid).tell(replace(gpu, census=None))

    def question(self, live: Live, *, past: bool) -> HistoryQuery | None:
        """Of which GPU the past is to be asked, and for which stretch; None while all that shows is known."""
        begin_ns, end_ns = live.at_ns - RANGE_NS, live.at_ns
        for gpu in live.gpus:
            track = self._track(gpu.device.uuid)
            wanted = track.question(begin_ns, end_ns, every_ns=0 if past else AGAIN_NS)
            if wanted is not None:
                first_ns, last_ns = wanted
                first_ns -= AROUND_NS if past and first_ns == begin_ns else 0
                last_ns += AROUND_NS if past and last_ns == end_ns else 0
                return HistoryQuery(gpu.device.uuid, first_ns, last_ns, live.at_ns, past)
        return None

    def take(self, question: HistoryQuery, answer: HistoryAnswer) -> None:
        lean = Trace(
            columns={name: answer.trace.columns[name] for name in (CLOCK, REASONS) if name in answer.trace.columns},
            gaps=tuple(gap for gap in answer.trace.gaps if gap.lane == Lane.FAST),
        )
        self._track(question.uuid).take(lean, question.begin_ns, answer.end_ns, now_ns=answer.now_ns)
        self._drawn.pop(question.uuid, None)

    def of(self, device: Device, at_ns: int, count: int) -> HistoryLines:
        """The two minutes before a moment in so many cells, each of them over: lines change once a cell, not at every answer."""
        slice_ns = RANGE_NS // count
        end_ns = at_ns // slice_ns * slice_ns
        span, drawn = Span(end_ns - count * slice_ns, end_ns, count), self._drawn.get(device.uuid)
        if drawn is None or drawn[0] != span:
            drawn = self._drawn[device.uuid] = span, trail(self._track(device.uuid).trace, device, span)
        return drawn[1]

    def _track(self, uuid: str) -> GpuHistory:
        return self._tracks.setdefault(uuid, GpuHistory((CLOCK, REASONS), kept_ns=KEPT_NS))


def trail(trace: Trace, device: Device, span: Span) -> HistoryLines:
    """The clock at its lowest in each cell, against its maximum, and the gravest reason; nothing in a gap."""
    chips = reason_strip.letters(reason_strip.slices(plot.without(trace.column(REASONS), trace.gaps), span))
    lowest = plot.band(plot.without(trace.column(CLOCK), trace.gaps), span).low
    ends = lowest[~np.isnan(lowest)]
    most = device.sm_clock_max_mhz or (float(ends.max()) if len(ends) else 1.0)
    levels = np.clip(np.nan_to_num(np.ceil(lowest / most * (len(EIGHTHS) - 1)), nan=0.0), 0, len(EIGHTHS) - 1).astype(int)
    bars = "".join(EIGHTHS[level] for level in levels.tolist())
    first = next((index for index, chip in enumerate(chips) if chip is not reason_strip.NOT_OBSERVED), 0)
    chips[:first] = [BEFORE] * first
    return HistoryLines((Piece(bars, Tone.DIM),), tuple(reason_strip.pieces(chips)))
