"""Idle time in a window by the gaps between timed entries, and runs of samples in which work was lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Timings, Values, WindowRecord
from annotate.stats.line import robust_line
from annotate.stats.robust import centre, quantiles, spread
from annotate.times.durations import every_count

Span: TypeAlias = tuple[int, int]  # start and end, in nanoseconds

STAMP_S = 6e-6  # two stamps of 3 µs around an entry, on an H200
SAMPLE_NS = 20_000_000  # the spacing of the dense power record
_EDGE_S = 20e-6  # error of an entry's start time
_ROUNDING_S = 5e-9  # times declared without start times are laid end to end, to the nanosecond
# The specification: a gap is irregular above five times the 99th percentile.  Above five times the 80th a second mode begins.
BEYOND, _OFTEN_PERCENT, _MOST_PERCENT = 5.0, 80.0, 99.0
_SHORTEST_S = 1e-3
_FEWEST_RUNS = 5  # fewest runs of a rhythm
_FEWEST_STALLS = 3  # fewest stalls that imply shorter stalls of the same kind
_NEARLY_EVERY_RATIO, _FEWEST_GAPS = 0.05, 40  # of fewer gaps, this quantile is near the smallest one
# Decision 0113: long gaps that vary are pauses of a host.  Their fixed part is the 5th percentile over the mean.
_PAUSE_S, _PAUSING_PARTS, _FEWEST_PAUSES = 100e-6, (0.4, 0.7), 20
_EVEN_RATIO = 0.85  # least part of the median gap that the 5th percentile has if the gaps are equal
_HIGH_SD = 10.0  # a gap farther above the line has another cause
_ALIKE_RATIO = 0.25  # runs in a rhythm: largest robust spread of the lengths over the median


@dataclass(frozen=True, eq=False)
class IdleGaps:
    """Idle stretches of a window, by gaps between entries or by dips of power, in order of time; the irregular ones are marked.

    ``idle_s`` is the idle time of each stretch.  The idle time may be less than the length: declared work and stamps are
    subtracted, and a power dip may be shallow.  ``usual_s`` is the idle time of a stretch without a special cause.
    """

    begin_ns: Times
    end_ns: Times
    idle_s: Values
    irregular: npt.NDArray[np.bool_]
    usual_s: float
    errors_s: Values  # the most by which each may be longer
    blur_s: float  # the part of one irregular gap that its witness does not resolve
    window_s: float
    short_s: float = 0.0  # total of further gaps of the same kind, too short to be irregular

    @cached_property
    def irregular_ratio(self) -> float:
        """Return the share of the window that irregular gaps take beyond the usual gap."""
        return float(np.maximum(self.idle_s[self.irregular] - self.usual_s, 0.0).sum()) / self.window_s

    @property
    def error_ratio(self) -> float:
        return (float(self.errors_s[self.irregular].sum()) + self.short_s) / self.window_s

    @property
    def sure_ratio(self) -> float:
        """Return the part of the irregular share that the witness certainly resolved."""
        return float(np.maximum(self.idle_s[self.irregular] - self.usual_s - self.blur_s, 0.0).sum()) / self.window_s

    @property
    def regular_ratio(self) -> float:
        """Return the share of the window that all other idle time takes."""
        return max(0.0, float(self.idle_s.sum()) / self.window_s - self.irregular_ratio)

    @cached_property
    def fixed_s(self) -> float:
        """Return the idle time that nearly every regular gap between entries contains: the 5th percentile; 0 below 40 gaps."""
        between_s = self._between_s
        return quantiles(between_s, _NEARLY_EVERY_RATIO)[0] if len(between_s) >= _FEWEST_GAPS else 0.0

    @property
    def fixed_ratio(self) -> float:
        """Return the share of the window that ``fixed_s`` takes in all regular gaps between entries."""
        return len(self._between_s) * self.fixed_s / self.window_s

    @property
    def is_even(self) -> bool:
        """Return whether nearly every regular gap between entries is almost as long as the median one."""
        return bool(self.fixed_s) and self.fixed_s >= _EVEN_RATIO * centre(self._between_s)

    @property
    def is_proportional(self) -> bool:
        """Return whether the regular gaps grow in proportion with the entries before them, as idle time does not.

        The whole interval of the gaps' slope over the entries' times must exceed 0.  The interval must also overlap the range
        from ``fixed_s`` to ``usual_s``, each divided by the median entry.
        """
        took_s = (self.begin_ns[1:-1] - self.end_ns[:-2]) / 1e9
        kept = ~self.irregular[1:-1] & (took_s > 0.0)
        took_s, raw_s = took_s[kept], ((self.end_ns - self.begin_ns)[1:-1] / 1e9)[kept]
        if not self.fixed_s or not took_s.std():
            return False
        line = robust_line(took_s, raw_s, high_sd=_HIGH_SD, floor=_ROUNDING_S)
        error = line.slope_error()
        usual_s = centre(took_s)
        return error is not None and (
            0.0 < line.slope - error <= self.usual_s / usual_s and line.slope + error >= self.fixed_s / usual_s
        )

    @property
    def pauses_ratio(self) -> float:
        """Return the share of the window by which long gaps after nearly every call vary, as pauses of a host do; else 0."""
        between_s = self._between_s
        if len(between_s) < _FEWEST_PAUSES or self.usual_s < _PAUSE_S:
            return 0.0
        varying_s = between_s.sum() - len(between_s) * quantiles(between_s, _NEARLY_EVERY_RATIO)[0]
        part = 1.0 - varying_s / between_s.sum()
        return float(varying_s) / self.window_s if _PAUSING_PARTS[0] <= part <= _PAUSING_PARTS[1] else 0.0

    @cached_property
    def _between_s(self) -> Values:
        return self.idle_s[1:-1][~self.irregular[1:-1]]

    def spans_ns(self, *, least_s: float = 0.0) -> tuple[Span, ...]:
        """Return the start and end of each irregular gap of at least this length."""
        kept = self.irregular & (self.end_ns - self.begin_ns >= least_s * 1e9)
        return tuple(zip(self.begin_ns[kept].tolist(), self.end_ns[kept].tolist(), strict=True))


def entry_gaps(
    timings: Timings,
    window: WindowRecord,
    *,
    covered: Sequence[Span] = (),
    timer_s: float = STAMP_S,
    shortest_s: Annotated[float, "the specification: no shorter gap is irregular"] = _SHORTEST_S,
) -> IdleGaps | None:
    """Return the gaps between entries and at the window's edges; None without entries or start times.

    A gap is irregular above five times the 99th percentile of the gaps between entries.  Gaps above five times the 80th
    percentile are irregular too, unless they recur at every Nth entry.  Stalls may be more frequent than one gap in 100.
    ``covered`` is declared other work, which is subtracted.  ``timer_s`` is the GPU's time for the timer of one call; the
    timers of all merged calls of an entry lie in its gap.  Entries may be in any order and may overlap.
    """
    if window.length_ns <= 0:
        return None
    ends_ns = timings.at_ns + np.round(np.where(timings.timed, timings.took_s, 0.0) * timings.calls_count * 1e9)
    kept = timings.timed & (ends_ns > window.begin_ns) & (timings.at_ns < window.end_ns)
    if not kept.any():
        return None
    at_ns, ends_ns = timings.at_ns[kept], ends_ns[kept]
    if (np.diff(at_ns) < 0).any():
        order = np.argsort(at_ns, kind="stable")
        at_ns, ends_ns = at_ns[order], ends_ns[order]
    inner_s = (at_ns[1:] - ends_ns[:-1]) / 1e9
    if len(inner_s) and bool((np.abs(inner_s) < _ROUNDING_S).all()):
        return None  # laid end to end: no start times were recorded
    at_ns = np.maximum(at_ns, window.begin_ns)
    until_ns = np.minimum(np.maximum.accumulate(ends_ns), window.end_ns).astype(np.int64)
    begin_ns = np.concatenate([[window.begin_ns], until_ns])
    end_ns = np.maximum(np.concatenate([at_ns, [window.end_ns]]), begin_ns)
    raw_s = (end_ns - begin_ns - overlap_ns(begin_ns, end_ns, covered)) / 1e9
    inner_s = raw_s[1:-1]
    usual_s = centre(inner_s) if len(inner_s) else 0.0
    limit_s = _limit_s(inner_s)
    irregular = raw_s > max(shortest_s, limit_s)
    # Stamps and events are work of the timer.  Against the length of an irregular gap they are negligible.
    idle_s = np.maximum(raw_s - np.where(irregular, 0.0, timer_s * timings.calls_count), 0.0)
    errors_s, short_s = np.full(len(raw_s), _EDGE_S), _short_s(raw_s, irregular, limit_s)
    return IdleGaps(begin_ns, end_ns, idle_s, irregular, usual_s, errors_s, _EDGE_S, window.length_s, short_s)


def _short_s(raw_s: Values, irregular: npt.NDArray[np.bool_], limit_s: float) -> float:
    """Return the total of gaps that exceed the loop's rhythm but are too short to be irregular; 0 below three stalls.

    Three or more stalls of random length imply shorter ones; one or two do not.
    """
    return float(raw_s[~irregular & (raw_s > limit_s)].sum()) if int(irregular[1:-1].sum()) >= _FEWEST_STALLS else 0.0


def _limit_s(inner_s: Values) -> float:
    """Return the length above which a gap does not belong to the loop's own rhythm; 0 without gaps."""
    if not len(inner_s):
        return 0.0
    # With few gaps, the longest must not raise its own limit.
    often, most = (percent / 100.0 * (len(inner_s) - 1) for percent in (_OFTEN_PERCENT, _MOST_PERCENT))
    last = min(int(most) + 1, len(inner_s) - 1)
    ordered = np.partition(inner_s, (int(often), int(most), last))  # faster than two calls of np.percentile
    often_s = BEYOND * float(ordered[int(often)])
    most_s = BEYOND * float(ordered[int(most)] + (most - int(most)) * (ordered[last] - ordered[int(most)]))
    beyond = np.flatnonzero(inner_s > max(often_s, _SHORTEST_S))
    return most_s if every_count(beyond) else min(often_s, most_s)


def lost_runs(found: npt.NDArray[np.bool_], lost_s: Values) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Values]:
    """Return the first and last sample of each run of marked samples, and its lost time."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], found.astype(np.int8), [0]])))
    firsts, lasts = edges[::2], edges[1::2] - 1
    total_s = np.concatenate([[0.0], np.cumsum(np.where(found, lost_s, 0.0))])
    return firsts, lasts, np.asarray(total_s[lasts + 1] - total_s[firsts], np.float64)


def rhythm_s(idle_s: Values, spacing_s: float = SAMPLE_NS / 1e9) -> float:
    """Return the median length of five or more runs that are alike, or at most two samples long; 0 without a rhythm."""
    if len(idle_s) < _FEWEST_RUNS:
        return 0.0
    usual_s = centre(idle_s)
    return usual_s if usual_s <= 2 * spacing_s or spread(idle_s) <= _ALIKE_RATIO * usual_s else 0.0


def overlap_ratios(gaps: Sequence[Span], spans: Sequence[Span]) -> Values:
    """Return the share of each gap that these spans cover; overlapping spans count once."""
    begin_ns, end_ns = (np.array([gap[side] for gap in gaps], np.int64) for side in (0, 1))
    return np.asarray(overlap_ns(begin_ns, end_ns, spans) / np.maximum(end_ns - begin_ns, 1), np.float64)


def overlap_ns(begin_ns: Times, end_ns: Times, spans: Sequence[Span]) -> Times:
    """Return the time for which any of the spans covers each interval."""
    if not spans or not len(begin_ns):
        return np.zeros(len(begin_ns), np.int64)
    ordered = np.array(sorted(spans), np.int64)
    reached = np.maximum.accumulate(np.concatenate([ordered[:1, 0], ordered[:-1, 1]]))
    from_ns = np.maximum(ordered[:, 0], reached)
    lengths = np.maximum(ordered[:, 1] - from_ns, 0)
    before = np.concatenate([[0], np.cumsum(lengths)])

    def until(at_ns: Times) -> Times:
        index = np.searchsorted(from_ns, at_ns, side="right") - 1
        held = np.maximum(index, 0)
        part = np.clip(at_ns - from_ns[held], 0, lengths[held])
        return np.asarray(np.where(index >= 0, before[held] + part, 0), np.int64)

    return until(end_ns) - until(begin_ns)
