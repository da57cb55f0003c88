"""Settings that stood throughout a window: the power limit and the requested clock."""

import numpy as np

from annotate.evidence import Evidence
from annotate.evidence.asked import kept


@kept
def standing_value(evidence: Evidence, name: str) -> float | None:
    """A setting that had one value all through the window; None if it was not read, or changed."""
    window, column = evidence.window, evidence.trace.column(name).observed
    first = max(0, int(np.searchsorted(column.at_ns, window.begin_ns, side="right")) - 1)
    near = column.values[first : int(np.searchsorted(column.at_ns, window.end_ns, side="left")) + 1]
    return float(near[0]) if len(near) and (near == near[0]).all() else None


def target_clock_mhz(evidence: Evidence) -> float | None:
    """The clock asked for throughout the window, or the board's highest where more was asked for."""
    target_mhz = standing_value(evidence, "sm_clock_lock_mhz")
    most_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    return min(target_mhz, most_mhz) if target_mhz is not None and most_mhz else target_mhz


def power_limit_w(evidence: Evidence) -> float | None:
    """The power limit that stood throughout: as read around the window, else as it was when the GPU was first seen."""
    if evidence.observes("power_limit_w"):
        return standing_value(evidence, "power_limit_w")
    return evidence.device.power_limit_w if evidence.device else None
