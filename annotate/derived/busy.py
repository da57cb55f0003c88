"""How much of a window the GPU was busy: by the driver's gauge, and by what the benchmark tells of its own work."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence
from annotate.times.durations import inside

# The driver refreshes utilisation about every 200 ms: over less than a second its mean says little to the point.
_SHORTEST_NS = 1_000_000_000
# Below this an event pair contains the gap to the next launch and overstates the busy time.
_LAUNCH_BOUND_S = 50e-6


def utilization_ratio(evidence: Evidence) -> float | None:
    """The driver's mean over the window; None in less than three refreshes or if mostly unobserved."""
    if evidence.window.length_ns < 3 * evidence.trace.refresh_of_ns("utilization_ratio"):
        return None
    values = evidence.within("utilization_ratio").values
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) and 2 * len(known) >= len(values) else None


def beyond_told_ratio(evidence: Evidence) -> float | None:
    """Utilisation minus the busy share the harness told (``told.busy_ratio``); negative if it claims more than there was."""
    told = evidence.told.get("busy_ratio")
    if not isinstance(told, int | float) or isinstance(told, bool) or not abs(told) < 1e6:
        return None
    utilization = utilization_ratio(evidence)
    return utilization - told if utilization is not None and evidence.window.length_ns >= _SHORTEST_NS else None


def launch_bound(evidence: Evidence) -> bool:
    """Whether the timed calls are so short that a good part of their time is the gap to the next launch."""
    times = inside(evidence)
    return bool(len(times.took_s)) and float(np.median(times.took_s)) < _LAUNCH_BOUND_S


def beyond_timed_ratio(evidence: Evidence) -> float | None:
    """Utilisation minus the share of time inside timed iterations, over the stretch they span (at least a second).

    None for iterations so short that their times contain launch gaps.
    """
    times = inside(evidence)
    if len(times.at_ns) < 2 or launch_bound(evidence):
        return None
    entries_s = times.took_s * times.calls_count
    begin_ns = int(times.at_ns[0])
    end_ns = min(int(times.at_ns[-1] + entries_s[-1] * 1e9), evidence.window.end_ns)
    if end_ns - begin_ns < _SHORTEST_NS:
        return None
    utilization = evidence.trace.within("utilization_ratio", begin_ns, end_ns).values
    utilization = utilization[~np.isnan(utilization)]
    if not len(utilization):
        return None
    return float(utilization.mean() - entries_s.sum() * 1e9 / (end_ns - begin_ns))
