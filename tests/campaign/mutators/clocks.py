"""Clocks that move inside the window."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence
from tests.campaign.edits import clocked, is_capped, stretch, valued
from tests.campaign.mutator import Mutator, limit_of


def _drifting(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return None if is_capped(evidence) else _sagging(evidence, multiple * limit_of("clock-drift", "flag_ratio"))


def _drifting_capped(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """The power controller swings the clock by more than the smallest drift, and any drift less than that is its own."""
    return _sagging(evidence, multiple * limit_of("clock-drift", "reject_ratio")) if is_capped(evidence) else None


def _sagging(evidence: Evidence, drift_ratio: float) -> Evidence:
    length_s = evidence.window.length_s
    return clocked(evidence, lambda at_s: 1.0 - drift_ratio * np.clip(at_s / length_s, 0.0, 1.0), beta=0.9)


def _rising(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    if is_capped(evidence):
        return None
    low_ratio = 1.0 - multiple * (1.0 - limit_of("clock-ramp", "low_ratio"))
    ramp_s = rng.uniform(0.25, 0.8)
    return clocked(evidence, lambda at_s: np.where(at_s < ramp_s, low_ratio, 1.0), beta=0.9)


def _slow_memory(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    low_ratio = 1.0 - multiple * (1.0 - limit_of("mem-clock-change", "top_ratio"))
    begin_ns, end_ns = stretch(evidence, 0.5, rng)
    return valued(
        evidence,
        "mem_clock_mhz",
        lambda at_ns, mhz: np.where((at_ns >= begin_ns) & (at_ns < end_ns), np.floor(low_ratio * mhz), mhz),
    )


MUTATORS = (
    Mutator(rule="clock-drift", inject=_drifting, limit="1 % from begin to end, no cap"),
    Mutator(rule="clock-drift", variant="under the cap", inject=_drifting_capped, limit="3 % from begin to end"),
    Mutator(rule="clock-ramp", inject=_rising, limit="3 % below the rest for 0.25 to 0.8 s"),
    Mutator(rule="mem-clock-change", inject=_slow_memory, limit="1 % below its top for half a second"),
)
