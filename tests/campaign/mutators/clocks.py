"""Hazards of clocks that change inside the window."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence
from annotate.ranges import TOLERANCE_RATIO
from tests.campaign.edits import clocked, is_capped, stretch, valued
from tests.campaign.mutator import Mutator

# In a linear drift the outer levels hold a fifth each, and the mean lies two fifths of the drift away from either level.
_DRIFT_TOLERANCES = 2.5


def _drifting(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return None if is_capped(evidence) else _sagging(evidence, multiple * _DRIFT_TOLERANCES * TOLERANCE_RATIO)


def _drifting_capped(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Put a drift into a capped window: the power controller's swing hides a drift of the usual size."""
    return _sagging(evidence, multiple * _DRIFT_TOLERANCES * TOLERANCE_RATIO) if is_capped(evidence) else None


def _sagging(evidence: Evidence, drift_ratio: float) -> Evidence:
    length_s = evidence.window.length_s
    return clocked(evidence, lambda at_s: 1.0 - drift_ratio * np.clip(at_s / length_s, 0.0, 1.0), beta=0.9)


def _rising(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    if is_capped(evidence):
        return None
    # The rest outweighs the ramp: the mean is off from the low start by at least half of the step.
    low_ratio = 1.0 - multiple * 2.0 * TOLERANCE_RATIO
    ramp_s = rng.uniform(0.25, 0.45) * evidence.window.length_s
    return clocked(evidence, lambda at_s: np.where(at_s < ramp_s, low_ratio, 1.0), beta=0.9)


def _slow_memory(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    low_ratio = 1.0 - multiple * 2.2 * TOLERANCE_RATIO
    begin_ns, end_ns = stretch(evidence, 0.5 * evidence.window.length_s, rng)
    return valued(
        evidence,
        "mem_clock_mhz",
        lambda at_ns, mhz: np.where((at_ns >= begin_ns) & (at_ns < end_ns), np.floor(low_ratio * mhz), mhz),
    )


MUTATORS = (
    Mutator(rule="clock-drift", inject=_drifting, limit="2.5 % from start to end, no cap"),
    Mutator(rule="clock-drift", variant="under the cap", inject=_drifting_capped, limit="2.5 % from start to end"),
    Mutator(rule="clock-ramp", inject=_rising, limit="the first 25 to 45 % of the time 2 % slower"),
    Mutator(rule="mem-clock-change", inject=_slow_memory, limit="2.2 % below the highest clock for half of the time"),
)
