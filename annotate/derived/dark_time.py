"""Dark time: the parts of a window without evidence for a proof, and the largest excursion that can hide in each.

Each proof needs another column.  Counters of capped time, thermal time and energy can bridge a silence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np

from annotate.derived.idle_gaps import SAMPLE_NS, Span
from annotate.derived.unwatched import dark_spans_ns
from annotate.evidence import STALE_NS, Evidence, Lane, Trace
from annotate.evidence.asked import kept

_LEAST_DRAWN_RATIO = 0.1  # power above rest, over rest
_ROUNDED_RATIO = 0.005  # the driver reports whole percents of utilisation
_CAPPED_RANGE_RATIO = 0.06  # the smallest range of the clock under a power cap, on an H200
_THERMAL = ("sw_thermal_ns", "hw_thermal_ns")


@dataclass(frozen=True, slots=True)
class DarkInterval:
    """A silence, the largest excursion that can hide in it, and the evidence that bridges it (empty: none)."""

    begin_ns: int
    end_ns: int
    excursion_ratio: float
    bridged_by: str = ""

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.begin_ns


def dark_ratio(stretches: Sequence[DarkInterval], length_ns: int) -> float:
    """Return the largest error of a number of this window from excursions hidden in these stretches."""
    return sum(each.length_ns * each.excursion_ratio for each in stretches) / length_ns if length_ns > 0 else 0.0


def column_silences_ns(evidence: Evidence, name: str) -> list[Span]:
    """Return the intervals of the window without a current value of this signal, disjoint and ascending."""
    column, window = evidence.trace.column(name), evidence.window
    unknown = np.isnan(column.values)
    if unknown.all():
        return [(window.begin_ns, window.end_ns)] if window.length_ns > 0 else []
    return dark_spans_ns(evidence, column.at_ns[~unknown], column.at_ns[unknown])


@kept
def clock_intervals(
    evidence: Evidence,
    *,
    longest_s: Annotated[float, "two refreshes of the driver's clock and a margin"] = 0.25,
) -> tuple[DarkInterval, ...]:
    """Return the silences of the driver's clock, which proof 3 needs in blocks without stamps.

    Counters can bridge a silence: with capped time observed and thermal time constant, the clock kept within the range of
    the trace.
    """
    found = [span for span in column_silences_ns(evidence, "sm_clock_mhz") if span[1] - span[0] > longest_s * 1e9]
    return tuple(_clock_interval(evidence, begin_ns, end_ns) for begin_ns, end_ns in found)


def power_intervals(
    evidence: Evidence,
    *,
    idle_w: float | None = None,
    apart_ns: Annotated[int, "two samples of the record"] = 2 * SAMPLE_NS,
) -> tuple[DarkInterval, ...]:
    """Return the parts of the window without samples of the dense power record, which proof 1 needs without times.

    The energy counter bridges such a part: the missing energy limits the GPU's idle time.  Utilisation limits the idle time
    of a short part.  The lower limit counts: over a second, one sample of the record is an error of 20 ms of energy.
    """
    window, dense = evidence.window, evidence.trace.dense_power
    low, high = np.searchsorted(dense.at_ns, (window.begin_ns, window.end_ns))
    edges_ns = [window.begin_ns, *dense.at_ns[low:high].tolist(), window.end_ns]
    found = [(begin, end) for begin, end in pairwise(edges_ns) if end - begin > apart_ns]
    by_energy = [_power_interval(evidence, begin, end, idle_w) for begin, end in found]
    return tuple(min(each, _gauged_interval(evidence, each), key=lambda one: one.excursion_ratio) for each in by_energy)


@kept
def list_intervals(
    evidence: Evidence,
    excursion_ratio: float,
    *,
    longest_s: Annotated[float, "a neighbour fits into a longer silence of a list that is read five times a second"] = 0.5,
) -> tuple[DarkInterval, ...]:
    """Return the parts of the window without a current process list, which proof 4 needs.  No evidence bridges them."""
    window = evidence.window
    found: list[Span] = [(gap.begin_ns, gap.end_ns) for gap in evidence.trace.gaps if gap.lane == Lane.PROCESSES]
    until_ns = window.begin_ns
    for process_list in evidence.trace.process_lists:
        found.append((until_ns, process_list.at_ns))
        until_ns = max(until_ns, process_list.at_ns + STALE_NS)
    found.append((until_ns, window.end_ns))
    inside = ((max(begin_ns, window.begin_ns), min(end_ns, window.end_ns)) for begin_ns, end_ns in found)
    merged: list[Span] = []
    for begin_ns, end_ns in sorted(span for span in inside if span[0] < span[1]):
        if merged and begin_ns <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_ns))
        else:
            merged.append((begin_ns, end_ns))
    return tuple(
        DarkInterval(begin_ns, end_ns, excursion_ratio) for begin_ns, end_ns in merged if end_ns - begin_ns > longest_s * 1e9
    )


def _clock_interval(evidence: Evidence, begin_ns: int, end_ns: int) -> DarkInterval:
    trace = evidence.trace
    cap = trace.increase("power_cap_ns", begin_ns, end_ns) or trace.increase("power_violation_ns", begin_ns, end_ns)
    heat = [rise.amount for name in _THERMAL if (rise := trace.increase(name, begin_ns, end_ns)) is not None]
    if cap is None or not heat or any(heat):
        return DarkInterval(begin_ns, end_ns, 1.0)
    excursion_ratio = _clock_range_ratio(trace, capped=cap.amount > 0)
    return DarkInterval(begin_ns, end_ns, excursion_ratio, "counters of capped and thermal time")


def _clock_range_ratio(trace: Trace, *, capped: bool) -> float:
    """Return the range of the trace's clock, as highest over lowest - 1, without clocks known to be idle.

    The result is at most 1 and, for ``capped``, at least the range of a capped clock.
    """
    column = trace.column("sm_clock_mhz")
    masks = np.nan_to_num(trace.at("event_reasons_mask", column.at_ns)).astype(np.int64)
    working = column.values[~np.isnan(column.values) & (masks & 1 == 0) & (column.values > 0)]
    seen = float(working.max() / working.min()) - 1.0 if len(working) else 1.0
    return min(1.0, max(seen, _CAPPED_RANGE_RATIO if capped else 0.0))


def _gauged_interval(evidence: Evidence, dark: DarkInterval) -> DarkInterval:
    """Return a stretch with the largest share of idle time that utilisation allows; unchanged if long or unread."""
    refresh_ns = evidence.trace.refresh_of_ns("utilization_ratio")
    # A reading describes one refresh, and is shown up to a refresh later.
    asked = evidence.trace.within("utilization_ratio", dark.begin_ns, dark.end_ns + 2 * refresh_ns)
    shown = asked.observed
    unread_ns = (1.0 - len(shown) / len(asked)) * (dark.length_ns + 2 * refresh_ns)
    # In a shorter gap of the readings, no refresh is missed.
    if dark.length_ns > refresh_ns or unread_ns > refresh_ns / 2 or shown.at_ns[-1] < dark.end_ns + refresh_ns:
        return dark
    idle_ns = 2 * refresh_ns * (1.0 - float(shown.values.min()) + _ROUNDED_RATIO)
    return DarkInterval(dark.begin_ns, dark.end_ns, min(1.0, idle_ns / dark.length_ns), "utilisation")


def _power_interval(evidence: Evidence, begin_ns: int, end_ns: int, idle_w: float | None) -> DarkInterval:
    """Return the stretch with the largest share of idle time that the energy around it allows."""
    trace, dense = evidence.trace, evidence.trace.dense_power
    energy = trace.column("energy_j")
    known = ~np.isnan(energy.values)
    at_ns, joules = energy.at_ns[known], energy.values[known]
    first = int(np.searchsorted(at_ns, begin_ns, side="right")) - 1
    last = int(np.searchsorted(at_ns, end_ns, side="left"))
    inside = (dense.at_ns >= evidence.window.begin_ns) & (dense.at_ns <= evidence.window.end_ns)
    if first < 0 or last >= len(at_ns) or idle_w is None or not inside.any():
        return DarkInterval(begin_ns, end_ns, 1.0)
    usual_w = float(np.median(dense.values[inside]))
    around = (dense.at_ns > at_ns[first]) & (dense.at_ns <= at_ns[last])
    outside = around & ~((dense.at_ns > begin_ns) & (dense.at_ns < end_ns))
    seen_j = float(dense.values[outside].sum()) * SAMPLE_NS / 1e9
    other_ns = at_ns[last] - at_ns[first] - (end_ns - begin_ns) - int(outside.sum()) * SAMPLE_NS
    spent_j = float(joules[last] - joules[first]) - seen_j - usual_w * float(other_ns) / 1e9
    if usual_w < (1.0 + _LEAST_DRAWN_RATIO) * idle_w:  # rest alone drifts by more than a short pause would save
        return DarkInterval(begin_ns, end_ns, 1.0)
    missing_j = usual_w * (end_ns - begin_ns) / 1e9 - spent_j
    idle_ns = missing_j / (usual_w - idle_w) * 1e9
    return DarkInterval(begin_ns, end_ns, float(np.clip(idle_ns / (end_ns - begin_ns), 0.0, 1.0)), "energy")
