"""When the power cap held: the only module that reads it from the driver's counters and flags."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from annotate.evidence import Column, Evidence, Increase, Reason, Times, Trace, Values

Span: TypeAlias = tuple[int, int]

# Rows later than this past a refresh belong to another one: the counter stood still in between.
_MISSED_REFRESHES = 1.5
# A step read late is made up for within this many.
_STEPS_AHEAD = 4
# A continuous counter read within this of both edges speaks of the window itself, to about this much: 0.97-1.03 over
# fully capped half seconds on an H200.
_EDGE_SLACK_NS = 50_000_000
_EDGE_ERROR_NS = 20_000_000
# Flags are snapshots: fewer refreshes than this say nothing of a share.
_FEWEST_REFRESHES = 3


@dataclass(frozen=True, slots=True)
class Capping:
    """How much of an interval the power cap held, as a share of it, what that may be wrong by, and who says so."""

    ratio: float
    error_ratio: float
    source: str  # "violation time", "counter" or "flags"


def capping(evidence: Evidence) -> Capping | None:
    """The share of the window under the power cap; None where nothing tells.

    Violation time runs on continuously, so it is taken first where it was read at both edges; then the counter, timed
    between its own steps; then the flag's share of the refreshes seen.
    """
    window = evidence.window
    if window.length_ns <= 0:
        return None
    exact = edge_increase(evidence, "power_violation_ns")
    if exact is not None:
        return Capping(min(1.0, exact.ratio), _EDGE_ERROR_NS / exact.span_ns, "violation time")
    counted = _counted(evidence.trace, window.begin_ns, window.end_ns)
    if counted is not None:
        return _share(counted, window.begin_ns, window.end_ns, evidence.trace.refresh_of_ns("power_cap_ns"), "counter")
    flagged = _flagged(evidence.trace, window.begin_ns, window.end_ns)
    if flagged is not None:
        refresh_ns = evidence.trace.refresh_of_ns("event_reasons_mask")
        return _share(flagged, window.begin_ns, window.end_ns, refresh_ns, "flags")
    return None


def capped_spans(trace: Trace, begin_ns: int, end_ns: int) -> tuple[Span, ...] | None:
    """The stretches of an interval in which the cap held, ascending; each edge is good to about one refresh.

    None where neither counter nor flags tell.  A stretch that began before the interval or ended after it is cut there.
    """
    counted = _counted(trace, begin_ns, end_ns)
    if counted is None:
        return _flagged(trace, begin_ns, end_ns)
    return tuple(_joined(counted, trace.refresh_of_ns("power_cap_ns") // 2))


def edge_increase(evidence: Evidence, name: str) -> Increase | None:
    """The rise of a continuous counter that was read at both edges of the window; None where only readings far from them
    are there.
    """
    window = evidence.window
    increase = evidence.increase(name)
    if increase is None:
        return None
    off_ns = max(abs(increase.begin_ns - window.begin_ns), abs(increase.end_ns - window.end_ns))
    return increase if off_ns <= min(_EDGE_SLACK_NS, window.length_ns // 4) else None


def _share(spans: Iterable[Span], begin_ns: int, end_ns: int, refresh_ns: int, source: str) -> Capping:
    """A stretch that covers an edge of the interval has no error there; every edge inside is half a refresh off."""
    spans = tuple(spans)
    capped_ns = sum(end - begin for begin, end in spans)
    inside = sum((begin > begin_ns) + (end < end_ns) for begin, end in _joined(spans, refresh_ns // 2))
    length_ns = end_ns - begin_ns
    return Capping(capped_ns / length_ns, min(1.0, inside * refresh_ns / 2 / length_ns), source)


def _counted(trace: Trace, begin_ns: int, end_ns: int) -> tuple[Span, ...] | None:
    """By the counter's own steps: each says how much of the time since the one before it was capped.

    Read over a fixed interval the counter errs by a refresh at each edge (0.78-1.22 of fully capped half seconds on an
    H200), because it is brought up to date only every 100 ms.  From step to step it does not.
    """
    column = trace.column("power_cap_ns")
    seen = ~np.isnan(column.values)
    at_ns, values = column.at_ns[seen], column.values[seen]
    late_ns = int(_MISSED_REFRESHES * trace.refresh_of_ns("power_cap_ns"))
    # The step that speaks of the interval's end is read after it, and the one it is counted from before its beginning.
    if not len(at_ns) or at_ns[0] > begin_ns + late_ns or at_ns[-1] < end_ns - late_ns:
        return None
    first, last = np.searchsorted(at_ns, [begin_ns, end_ns])
    bracket = values[max(0, first - 1) : last + 1]
    if len(bracket) < 2 or (np.diff(bracket) < 0).any():
        return None  # it was set back: the driver was loaded anew
    spans = _steps(at_ns, values, late_ns)
    if spans and at_ns[-1] - spans[-1][1] < late_ns:
        spans.append((spans[-1][1], end_ns))  # its next step was not waited for
    return _clipped(spans, begin_ns, end_ns)


def _steps(at_ns: Times, values: Values, late_ns: int) -> list[Span]:
    """Where the cap held, interval by interval between the counter's rises."""
    rises = np.flatnonzero(np.diff(values) > 0) + 1
    if not len(rises):
        return []
    edges_ns = np.concatenate((at_ns[:1], at_ns[rises]))
    # How far the counter has fallen behind the clock: what only comes and goes is a step read early or late.
    counted_ns = np.concatenate(([0.0], np.cumsum(np.maximum(np.diff(values), 0.0))[rises - 1]))
    behind_ns = (edges_ns - edges_ns[0]) - counted_ns
    ahead = [behind_ns[i : i + _STEPS_AHEAD].min() for i in range(len(behind_ns))]
    free_ns = np.diff(np.maximum.accumulate(ahead))
    spans: list[Span] = []
    for begin_ns, end_ns, free in zip(edges_ns[:-1].tolist(), edges_ns[1:].tolist(), free_ns.tolist(), strict=True):
        held_ns = end_ns - begin_ns - int(free)
        if held_ns <= 0:
            continue
        running = bool(spans) and spans[-1][1] >= begin_ns
        if running and end_ns - begin_ns <= late_ns:
            spans.append((begin_ns, begin_ns + held_ns))  # if it let go, it did so within this refresh
        else:
            spans.append((end_ns - held_ns, end_ns))  # if it took hold, it did so within this refresh
    return spans


def _flagged(trace: Trace, begin_ns: int, end_ns: int) -> tuple[Span, ...] | None:
    refresh_ns = trace.refresh_of_ns("event_reasons_mask")
    if end_ns - begin_ns < _FEWEST_REFRESHES * refresh_ns:
        return None
    # A flag shows what was true up to a refresh ago, so the interval's own readings begin and end that much later.
    lag_ns = refresh_ns // 2
    grid: Column = trace.within("event_reasons_mask", begin_ns + lag_ns, end_ns + lag_ns)
    known = ~np.isnan(grid.values)
    if 2 * int(known.sum()) < len(grid):
        return None
    held = np.zeros(len(grid), bool)
    held[known] = (grid.values[known].astype(np.int64) & Reason.SW_POWER_CAP) != 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], held, [False])).astype(np.int8)))
    stops = np.append(grid.at_ns, end_ns + lag_ns) - lag_ns
    return tuple((int(stops[a]), int(stops[b])) for a, b in zip(edges[::2], edges[1::2], strict=True))


def _joined(spans: Iterable[Span], apart_ns: int) -> list[Span]:
    out: list[Span] = []
    for begin_ns, end_ns in sorted(spans):
        if out and begin_ns - out[-1][1] <= apart_ns:
            out[-1] = (out[-1][0], max(out[-1][1], end_ns))
        else:
            out.append((begin_ns, end_ns))
    return out


def _clipped(spans: Iterable[Span], begin_ns: int, end_ns: int) -> tuple[Span, ...]:
    cut = ((max(begin, begin_ns), min(end, end_ns)) for begin, end in spans)
    return tuple((begin, end) for begin, end in cut if begin < end)
