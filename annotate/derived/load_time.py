"""The start times of uninterrupted load, and the excess speed of a power-capped kernel after each start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.derived.idle_gaps import SAMPLE_NS, Span
from annotate.derived.onset import last_pause_end_ns
from annotate.evidence import Evidence, Times, Values

# The specification: no gap up to ``PAUSE_S`` ends a load, and a capped clock is steady ``STEADY_S`` after a longer gap.
PAUSE_S = 0.02
STEADY_S = 3.0
_CYCLE_S = 1.0
_HALF = 0.5
_LEAD_S = 5.0  # a trace begins this long before its window


@dataclass(frozen=True, slots=True)
class Excess:
    """The excess speed of work over the steady state, by the time since its load began.

    ``left_s`` holds pairs of a time since load began and the work still gained or lost until the steady state, both in
    seconds.  The clock overshoots in both directions, so these pairs are not the integral of one curve.
    """

    most_ratio: float  # the most over any stretch
    median_ratio: float  # the most over half of the iterations before the steady state
    left_s: tuple[tuple[float, float], ...]

    def gained_s(self, first_s: Values, last_s: Values) -> Values:
        """Return the most that stretches of load gain or lose between two times since load began, in seconds."""
        since_s, left_s = zip(*self.left_s, strict=True)
        return np.asarray(np.minimum(np.interp(first_s, since_s, left_s), self.most_ratio * (last_s - first_s)), np.float64)


# 95 % of 24 measured runs: four capped kernels on an H200 after pauses of 0.05 to 1.5 s, ``tests/traces/h200-excess.json``.
EXCESS: Mapping[str, Excess] = {
    "NVIDIA H200": Excess(
        most_ratio=0.18,
        median_ratio=0.005,
        left_s=((0.0, 0.0266), (0.05, 0.022), (0.75, 0.0215), (1.0, 0.011), (1.5, 0.0085), (2.0, 0.004), (3.0, 0.0)),
    )
}


@dataclass(frozen=True, slots=True, eq=False)
class LoadTime:
    """The times at which load began: the last one before the window, and after each pause in the window.

    ``before_known`` is False if the time before the window was not observed.  The first load then begins with the window.
    """

    began_ns: Times
    ended_ns: Times  # the end of each load: the start of the next pause, or the window's end
    window_begin_ns: int
    before_known: bool

    @property
    def is_settled(self) -> bool:
        """Return whether the load lasted for 3 s before the window and throughout it."""
        since_ns = self.window_begin_ns - int(self.began_ns[0])
        return self.before_known and len(self.began_ns) == 1 and since_ns >= STEADY_S * 1e9

    def steady_span_ns(self, *, steady_s: float = STEADY_S, least_s: float = _CYCLE_S) -> Span | None:
        """Return the longest part of the window after ``steady_s`` of load, or None if it is shorter than a cycle."""
        from_ns = np.maximum(self.began_ns + int(steady_s * 1e9), self.window_begin_ns)
        lengths_ns = self.ended_ns - from_ns
        at = int(np.argmax(lengths_ns))
        return (int(from_ns[at]), int(self.ended_ns[at])) if lengths_ns[at] >= least_s * 1e9 else None

    def excess_ratio(self, excess: Excess) -> float:
        """Return the largest excess of the window's mean speed over the steady speed."""
        first_s = np.maximum(self.window_begin_ns - self.began_ns, 0) / 1e9
        last_s = (self.ended_ns - self.began_ns) / 1e9
        span_s = float(self.ended_ns[-1] - self.window_begin_ns) / 1e9
        if span_s <= 0.0:
            return 0.0
        return min(excess.most_ratio, float(excess.gained_s(first_s, np.maximum(last_s, first_s)).sum()) / span_s)

    def median_excess_ratio(self, excess: Excess) -> float:
        """Return the largest excess of the median speed: the mean's, and at least fresh load's if most of the load is fresh."""
        mean_ratio = self.excess_ratio(excess)
        if not mean_ratio:
            return 0.0
        first_ns = np.maximum(self.began_ns, self.window_begin_ns)
        fresh_ns = np.clip(np.minimum(self.ended_ns, self.began_ns + int(STEADY_S * 1e9)) - first_ns, 0, None).sum()
        is_fresh = fresh_ns > _HALF * np.clip(self.ended_ns - first_ns, 0, None).sum()
        return max(excess.median_ratio, mean_ratio) if is_fresh else mean_ratio


def load_time(
    evidence: Evidence,
    pauses: Sequence[Span],
    *,
    pause_s: Annotated[float, "the specification: load is unbroken while no gap exceeds this"] = PAUSE_S,
) -> LoadTime:
    """Return the start times of load, given the pauses inside the window (``IdleGaps.spans_ns``).

    Before the window, a pause is two low samples of the dense power record or a low refresh of a gauge.
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
    """Return the measured excess of a GPU model, real or simulated, or None if it was not measured."""
    return EXCESS.get((model or "").removeprefix("SIMULATED "))


def unknown_excess(lowest_mhz: float, highest_mhz: float) -> Excess:
    """Return the assumed excess of an unmeasured model: the highest over the lowest clock, minus 1, for three seconds."""
    ratio = highest_mhz / lowest_mhz - 1.0
    return Excess(ratio, ratio, ((0.0, ratio * STEADY_S), (STEADY_S, 0.0)))


def _is_watched_before(evidence: Evidence) -> bool:
    """Return whether the power record or a gauge covers half of the five seconds before the window."""
    trace, begin_ns = evidence.trace, evidence.window.begin_ns
    since_ns = begin_ns - int(_LEAD_S * 1e9)
    dense = trace.dense_power.at_ns
    if 2 * int(((dense >= since_ns) & (dense <= begin_ns)).sum()) * SAMPLE_NS >= _LEAD_S * 1e9:
        return True
    columns = (trace.within(name, since_ns, begin_ns).values for name in ("utilization_ratio", "power_w"))
    return any(len(values) > 0 and float((~np.isnan(values)).mean()) >= 0.5 for values in columns)
