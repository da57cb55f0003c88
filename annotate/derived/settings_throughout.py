"""Settings that held throughout a window: the power limit and the requested clock."""

import numpy as np

from annotate.evidence import Evidence
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
    """Return the power limit that held throughout.

    Without a reading of the limit, return the one recorded when the GPU was first seen.
    """
    if evidence.observes("power_limit_w"):
        return standing_value(evidence, "power_limit_w")
    return evidence.device.power_limit_w if evidence.device else None
