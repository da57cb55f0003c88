"""Settings that held throughout a window: the power limit and the requested clock."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.derived.idle_gaps import SAMPLE_NS, Span
from annotate.derived.load_time import excess_of
from annotate.evidence import Evidence, Fact
from annotate.evidence.asked import kept


@kept
def standing_value(evidence: Evidence, name: str) -> float | None:
    """Return the value of a setting that was constant in the window, or None if it changed or was not read."""
    window, column = evidence.window, evidence.trace.column(name).observed
    first = max(0, int(np.searchsorted(column.at_ns, window.begin_ns, side="right")) - 1)
    near = column.values[first : int(np.searchsorted(column.at_ns, window.end_ns, side="left")) + 1]
    return float(near[0]) if len(near) and (near == near[0]).all() else None


def target_clock_mhz(evidence: Evidence) -> float | None:
    """Return the clock requested throughout the window, at most the board's highest, or None if it changed or was not read."""
    target_mhz = standing_value(evidence, "sm_clock_lock_mhz")
    most_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    return min(target_mhz, most_mhz) if target_mhz is not None and most_mhz else target_mhz


def power_limit_w(evidence: Evidence) -> float | None:
    """Return the power limit that held throughout, or None if it changed.

    Without a reading of the limit, return the one recorded when the GPU was first seen.
    """
    if evidence.observes("power_limit_w"):
        return standing_value(evidence, "power_limit_w")
    return evidence.device.power_limit_w if evidence.device else None


@dataclass(frozen=True, slots=True)
class BeyondLimit:
    """The second of a window in which the board drew more than the power limit that was read before and after."""

    limit_w: float
    power_w: float
    span_ns: Span

    def facts(self, window_begin_ns: int) -> dict[str, Fact]:
        from_s, to_s = ((at_ns - window_begin_ns) / 1e9 for at_ns in self.span_ns)
        return {
            "before": f"{self.limit_w:.0f} W",
            "after": f"{self.power_w:.0f} W or more (the mean power of a second)",
            "when": f"between two readings, {from_s:.1f} s to {to_s:.1f} s into the window",
            "changes_count": 1,
        }


@kept
def beyond_limit(
    evidence: Evidence,
    *,
    is_settled: bool,
    over_s: Annotated[float, "a cycle of the power controller"] = 1.0,
    beyond_ratio: Annotated[
        float, "at most -0.1 % after 3 s of load in 226 recorded windows of H200s, 1.0 % in 194 others"
    ] = 0.02,
) -> BeyondLimit | None:
    """Return the second with the highest power by the 20 ms record, if its mean is ``beyond_ratio`` above the limit; else None.

    The controller holds the mean power of its cycle at the limit, so that a higher mean shows a higher limit.  After less
    power the controller overshoots.  The load must therefore last for 3 s, and the second before must draw at most
    ``beyond_ratio`` less than the limit.  Return None for boards that were not measured.
    """
    limit_w, device = power_limit_w(evidence), evidence.device
    if not limit_w or not is_settled or excess_of(device.name if device else None) is None:
        return None
    dense, window, count = evidence.trace.dense_power, evidence.window, round(over_s * 1e9 / SAMPLE_NS)
    first, last = np.searchsorted(dense.at_ns, (window.begin_ns - round(over_s * 1e9), window.end_ns), side="right")
    known = first + np.flatnonzero(np.isfinite(dense.values[first:last]))
    at_ns, power_w = dense.at_ns[known], dense.values[known]
    if len(at_ns) < 2 * count:
        return None
    sums = np.concatenate([[0.0], np.cumsum(power_w)])
    means_w = (sums[count:] - sums[:-count]) / count
    spans_s = (at_ns[count - 1 :] - at_ns[: len(means_w)]) / 1e9
    means_w[abs(spans_s / over_s - 1.0) > 0.1] = 0.0  # samples are missing or have another spacing
    begins_ns = at_ns[count : len(means_w)] - SAMPLE_NS  # a sample is the mean of the 20 ms before it
    is_beside = (begins_ns < window.begin_ns) | (means_w[:-count] < (1.0 - beyond_ratio) * limit_w)
    means_w = np.where(is_beside, 0.0, means_w[count:])
    if not len(means_w) or not means_w.max() > (1.0 + beyond_ratio) * limit_w:
        return None
    at = int(means_w.argmax())
    return BeyondLimit(limit_w, float(means_w[at]), (int(begins_ns[at]), int(at_ns[at + 2 * count - 1])))
