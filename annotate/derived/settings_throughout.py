"""Settings that stood throughout a window: the power limit and the clock that somebody asked for."""

import numpy as np

from annotate.derived.held import by_bits
from annotate.evidence import Evidence, Reason


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


def has_same_settings(evidence: Evidence, held_ratio: float) -> bool:
    """Return whether the baseline had the same power limit and clock, both read in both windows or in neither."""
    baseline = evidence.baseline
    if baseline is None or power_limit_w(evidence) is None or power_limit_w(evidence) != power_limit_w(baseline):
        return False
    name = "sm_clock_lock_mhz"
    # A setting that moved within both windows is none that they share.
    moved = any(each.observes(name) and standing_value(each, name) is None for each in (evidence, baseline))
    asked = (by_bits(each, Reason.APPLICATIONS_CLOCKS) for each in (evidence, baseline))
    now, then = (each is not None and each.ratio > held_ratio for each in asked)
    return not moved and standing_value(evidence, name) == standing_value(baseline, name) and now == then
