"""The share of a window in which the GPU worked, and what its pauses hide: clock and power of the same work back to back."""

from __future__ import annotations

import numpy as np

from annotate.derived.busy import has_reason, utilization_ratio
from annotate.derived.sm_clock import median_mhz, working
from annotate.evidence import Column, Evidence, Reason, Timings
from annotate.times.durations import inside

# A capped clock is known by so much of it, while the GPU was kept so busy.
_KNOWN_NS = 500_000_000
_DENSE_RATIO = 0.8
# With fewer iterations a median pause is nobody's habit.
_FEWEST_COUNT = 10


def duty(evidence: Evidence) -> tuple[float | None, str | None]:
    """The share of the window in which the GPU worked, and who says so: the driver, else the harness, else its counters."""
    busy = utilization_ratio(evidence)
    if busy is not None:
        return busy, "utilisation"
    declared = evidence.declared.get("busy_ratio")
    if isinstance(declared, int | float) and not isinstance(declared, bool) and 0.0 <= declared <= 1.5:
        return float(declared), "told"
    if evidence.window.length_ns >= 3 * evidence.trace.refresh_of_ns("sm_activity_ratio"):
        activity = evidence.within("sm_activity_ratio").mean()
        if activity is not None:
            return activity, "SM activity"
    return None, None


def regular_pause_s(evidence: Evidence, gap_ratio: float, gap_s: float) -> float | None:
    """The median pause between iterations, if it is regular and long; None if not, or if no times are known."""
    times = inside(evidence)
    if len(times.at_ns) < _FEWEST_COUNT:
        return None
    entries_s = times.took_s * times.calls_count
    pause_s = float(np.median(np.diff(times.at_ns) / 1e9 - entries_s[:-1]))
    return pause_s if pause_s > gap_s and pause_s > gap_ratio * float(np.median(entries_s)) else None


def capped_clock_ratio(evidence: Evidence) -> float | None:
    """The clock while capped, anywhere in the trace, over the window's: known if it was capped for half a second before."""
    window_mhz = median_mhz(working(evidence))
    column = evidence.trace.column("sm_clock_mhz")
    if not window_mhz or not len(column):
        return None
    step_ns = evidence.trace.refresh_of_ns("sm_clock_mhz")
    before = evidence.trace.within("sm_clock_mhz", int(column.at_ns[0]), evidence.window.begin_ns, step_ns=step_ns)
    capped = has_reason(evidence.trace.at("event_reasons_mask", before.at_ns), Reason.SW_POWER_CAP)
    # Capped in bursts is not capped for good: its clock says nothing of work back to back.
    dense = evidence.trace.at("utilization_ratio", before.at_ns) >= _DENSE_RATIO
    capped_mhz = before.where(capped & dense).observed.values
    return float(np.median(capped_mhz)) / window_mhz if len(capped_mhz) * step_ns >= _KNOWN_NS else None


def is_light(evidence: Evidence, busy: float, power_ratio: float) -> bool:
    """Return whether power would stay far below its limit if the GPU were busy throughout."""
    limit_w = evidence.device.power_limit_w if evidence.device else None
    power = evidence.within("power_w").observed.values
    return bool(limit_w and len(power) and busy > 0 and float(power.mean()) / busy < power_ratio * limit_w)


def iterations(timings: Timings, begin_ns: int, end_ns: int) -> Column:
    """The times of the iterations that began in an interval; what is no duration is left out."""
    kept = (timings.at_ns >= begin_ns) & (timings.at_ns < end_ns) & timings.timed
    return Column(timings.at_ns, timings.took_s).where(kept)
