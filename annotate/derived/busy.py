"""The share of a window in which the GPU was busy: by the driver's gauges, and as the benchmark declares it."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from annotate.evidence import Evidence, Reason, Times, Values
from annotate.evidence.asked import kept
from annotate.stats.robust import centre
from annotate.times.durations import inside

# The driver refreshes utilisation about every 200 ms: over less than a second, the mean is too coarse.
_SHORTEST_NS = 1_000_000_000
# Utilisation at or below this is a GPU at rest: the driver rounds to whole percents.
_IDLE_RATIO = 0.01

Mask: TypeAlias = npt.NDArray[np.bool_]


@kept
def utilization_ratio(evidence: Evidence) -> float | None:
    """Return the driver's mean utilisation over the window; None below three refreshes or if mostly unobserved."""
    if evidence.window.length_ns < 3 * evidence.trace.refresh_of_ns("utilization_ratio"):
        return None
    return evidence.within("utilization_ratio").mean()


@kept
def beyond_declared_ratio(evidence: Evidence) -> float | None:
    """Return utilisation minus the busy share that the harness declared; None below a second or if either is unknown.

    The window's second refresh may still show the warm-up, so the lower of the means with and without this refresh counts.
    """
    declared = evidence.declared.get("busy_ratio")
    if not isinstance(declared, int | float) or isinstance(declared, bool) or not abs(declared) < 1e6:
        return None
    utilization = utilization_ratio(evidence)
    if utilization is None or evidence.window.length_ns < _SHORTEST_NS:
        return None
    name, trace, window = "utilization_ratio", evidence.trace, evidence.window
    later = trace.within(name, window.begin_ns + 2 * trace.refresh_of_ns(name), window.end_ns).mean()
    return (utilization if later is None else min(utilization, later)) - declared


@kept
def launch_bound(evidence: Evidence) -> bool:
    """Return whether the median timed call is below 50 µs, so that its time includes much of the gap to the next launch."""
    times = inside(evidence)
    return bool(len(times.took_s)) and centre(times.took_s) < 50e-6


@kept
def beyond_timed_ratio(evidence: Evidence) -> float | None:
    """Return utilisation minus the timed share, over the interval that the timed iterations span.

    Return None without utilisation, for fewer than two iterations, for an interval below a second, and for calls so short
    that their times hold launch gaps.
    """
    times = inside(evidence)
    if len(times.at_ns) < 2 or launch_bound(evidence):
        return None
    entries_s = times.took_s * times.calls_count
    begin_ns = int(times.at_ns[0])
    end_ns = min(int(times.at_ns[-1] + entries_s[-1] * 1e9), evidence.window.end_ns)
    if end_ns - begin_ns < _SHORTEST_NS:
        return None
    utilization = evidence.trace.within("utilization_ratio", begin_ns, end_ns).observed.values
    return float(utilization.mean() - entries_s.sum() * 1e9 / (end_ns - begin_ns)) if len(utilization) else None


def has_reason(masks: Values, bits: Reason) -> Mask:
    """Return a mask of the event reasons that hold one of the bits; False where they were not observed."""
    return np.asarray((np.where(np.isnan(masks), 0.0, masks).astype(np.int64) & int(bits)) != 0)


def busy_at(evidence: Evidence, at_ns: Times) -> Mask:
    """Return a mask of the times at which the GPU was known to work."""
    used = evidence.trace.at("utilization_ratio", at_ns)
    return (used > _IDLE_RATIO) & ~has_reason(evidence.trace.at("event_reasons_mask", at_ns), Reason.GPU_IDLE)


def idle_at(evidence: Evidence, at_ns: Times) -> Mask:
    """Return a mask of the times at which the GPU was known to rest."""
    used = evidence.trace.at("utilization_ratio", at_ns)
    return (used <= _IDLE_RATIO) | has_reason(evidence.trace.at("event_reasons_mask", at_ns), Reason.GPU_IDLE)


@kept
def memory_use_ratio(evidence: Evidence) -> float | None:
    """Return the mean DRAM activity, else the share of time with reads or writes of memory; None without either."""
    for name in ("dram_activity_ratio", "mem_utilization_ratio"):
        values = evidence.within(name).observed.values
        if len(values):
            return float(values.mean())
    return None


@kept
def duty(evidence: Evidence) -> tuple[float | None, str | None]:
    """Return the busy share and its witness: utilisation, else the harness, else SM activity; twice None without any."""
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
