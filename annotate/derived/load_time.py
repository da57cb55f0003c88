"""The time since which the GPU works without a pause, and how much faster than later a power-capped kernel runs meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from annotate.derived.idle_gaps import SAMPLE_NS, Span
from annotate.derived.onset import last_pause_end_ns
from annotate.evidence import Evidence, Times, Values

# The specification: no gap up to this ends a load, and a capped clock is steady this long after one.
PAUSE_S = 0.02
STEADY_S = 3.0
_CYCLE_S = 1.0
_MEDIAN_COUNT = 401  # instants of a window
_LEAD_S = 5.0  # a trace begins so long before its window

# From this time since a pause on, the speed exceeds the steady one by this ratio.
Excess: TypeAlias = Sequence[tuple[float, float]]

# Start values of the specification, an H200 with GEMMs.
EXCESS: Mapping[str, Excess] = {"NVIDIA H200": ((0.0, 0.06), (0.3, 0.005), (3.0, 0.0))}


@dataclass(frozen=True, slots=True, eq=False)
class LoadTime:
    """The times at which load began: the last one before the window, and after each pause in it.

    ``before_known`` says whether anything tells of the time before the window.  If not, the first begin is the window's.
    """

    began_ns: Times
    ended_ns: Times  # of the load that began: the next pause's begin, or the window's end
    window_begin_ns: int
    before_known: bool

    def steady_span_ns(self, *, steady_s: float = STEADY_S, least_s: float = _CYCLE_S) -> Span | None:
        """Return the longest part of the window that follows this much load; None if it is shorter than a cycle."""
        if not self.before_known and len(self.began_ns) == 1 and self.began_ns[0] < self.window_begin_ns:
            return None
        from_ns = np.maximum(self.began_ns + int(steady_s * 1e9), self.window_begin_ns)
        lengths_ns = self.ended_ns - from_ns
        at = int(np.argmax(lengths_ns))
        return (int(from_ns[at]), int(self.ended_ns[at])) if lengths_ns[at] >= least_s * 1e9 else None

    def excess_ratio(self, excess: Excess) -> float:
        """Return the mean excess speed over the window's load, as a share of the window from its begin to its last load."""
        first_s = np.maximum(self.window_begin_ns - self.began_ns, 0) / 1e9
        last_s = (self.ended_ns - self.began_ns) / 1e9
        gained_s = _integral_s(last_s, excess) - _integral_s(first_s, excess)
        span_s = float(self.ended_ns[-1] - self.window_begin_ns) / 1e9
        return float(gained_s.sum()) / span_s if span_s > 0.0 else 0.0

    def median_excess_ratio(self, excess: Excess) -> float:
        """Return the excess speed that half of the window's load reaches, or its mean if that is more."""
        mean_ratio = self.excess_ratio(excess)
        if not mean_ratio:
            return 0.0
        at_ns = np.linspace(self.window_begin_ns, int(self.ended_ns[-1]), _MEDIAN_COUNT, endpoint=False)
        since_s = (at_ns - self.began_ns[np.maximum(np.searchsorted(self.began_ns, at_ns, side="right") - 1, 0)]) / 1e9
        steps_s, ratios = (np.array(part) for part in zip(*excess, strict=True))
        found = ratios[np.maximum(np.searchsorted(steps_s, since_s, side="right") - 1, 0)]
        return max(float(np.median(found)), mean_ratio)


def load_time(
    evidence: Evidence,
    pauses: Sequence[Span],
    *,
    pause_s: Annotated[float, "the specification: load is unbroken while no gap exceeds this"] = PAUSE_S,
) -> LoadTime:
    """Return when load began, given the pauses inside the window (``IdleGaps.spans_ns``).

    Before the window a pause is two samples of the dense power record, or what the gauges show.
    """
    window = evidence.window
    began_ns = last_pause_end_ns(evidence, within_s=_LEAD_S, longest_s=2 * SAMPLE_NS / 1e9)
    known = began_ns is not None or _is_watched_before(evidence)
    if began_ns is None:
        began_ns = window.begin_ns - int((_LEAD_S if known else 0.0) * 1e9)
    begins, ends = [min(began_ns, window.begin_ns)], []
    for begin_ns, end_ns in sorted(pauses):
        if end_ns - begin_ns <= pause_s * 1e9 or end_ns <= window.begin_ns or begin_ns >= window.end_ns:
            continue
        ends.append(max(begin_ns, begins[-1]))
        begins.append(max(min(end_ns, window.end_ns), begins[-1]))
    ends.append(window.end_ns)
    return LoadTime(np.array(begins, np.int64), np.array(ends, np.int64), window.begin_ns, known)


def excess_of(model: str | None) -> Excess | None:
    """Return what is measured of a GPU model; None for any other."""
    return EXCESS.get(model or "")


def unknown_excess(lowest_mhz: float, highest_mhz: float) -> Excess:
    """Return the excess to assume of a model that is not measured: highest over lowest clock, for three seconds."""
    return ((0.0, highest_mhz / lowest_mhz - 1.0), (STEADY_S, 0.0))


def _integral_s(until_s: Values, excess: Excess) -> Values:
    """Return the excess speed integrated from 0 to each of these times."""
    ends_s = [since_s for since_s, _ in excess[1:]] + [np.inf]
    total = np.zeros(len(until_s))
    for (since_s, ratio), end_s in zip(excess, ends_s, strict=True):
        if ratio:
            total += ratio * np.clip(np.minimum(until_s, end_s) - since_s, 0.0, None)
    return total


def _is_watched_before(evidence: Evidence) -> bool:
    """Return whether the record of power, or a gauge, speaks of most of the time before the window."""
    trace, begin_ns = evidence.trace, evidence.window.begin_ns
    since_ns = begin_ns - int(_LEAD_S * 1e9)
    dense = trace.dense_power.at_ns
    if 2 * int(((dense >= since_ns) & (dense <= begin_ns)).sum()) * SAMPLE_NS >= _LEAD_S * 1e9:
        return True
    columns = (trace.within(name, since_ns, begin_ns).values for name in ("utilization_ratio", "power_w"))
    return any(len(values) > 0 and float((~np.isnan(values)).mean()) >= 0.5 for values in columns)
