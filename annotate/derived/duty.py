"""The share of a window in which the GPU worked, and what its pauses hide: clock and power of the same work back to back."""

from __future__ import annotations

import numpy as np

from annotate.derived.busy import utilization_ratio
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
        values = evidence.within("sm_activity_ratio").values
        known = values[~np.isnan(values)]
        if 2 * len(known) >= len(values) and len(known):
            return float(known.mean()), "SM activity"
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
    masks = np.nan_to_num(evidence.trace.at("event_reasons_mask", before.at_ns)).astype(np.int64)
    # Capped in bursts is not capped for good: its clock says nothing of work back to back.
    used = evidence.trace.at("utilization_ratio", before.at_ns)
    capped = before.values[((masks & int(Reason.SW_POWER_CAP)) != 0) & ~np.isnan(before.values) & (used >= _DENSE_RATIO)]
    if len(capped) * step_ns < _KNOWN_NS:
        return None
    return float(np.median(capped)) / window_mhz


def is_light(evidence: Evidence, busy: float, power_ratio: float) -> bool:
    """Return whether power would stay far below its limit if the GPU were busy throughout."""
    limit_w = evidence.device.power_limit_w if evidence.device else None
    power = evidence.within("power_w").values
    known = power[~np.isnan(power)]
    return bool(limit_w and len(known) and busy > 0 and float(known.mean()) / busy < power_ratio * limit_w)


def iterations(timings: Timings, begin_ns: int, end_ns: int) -> Column:
    """The times of the iterations that began in an interval; what is no duration is left out."""
    kept = (timings.at_ns >= begin_ns) & (timings.at_ns < end_ns) & timings.timed
    return Column(timings.at_ns[kept], timings.took_s[kept])
