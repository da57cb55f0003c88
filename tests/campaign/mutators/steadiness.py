"""Hazards of two states in one window, and of pauses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.claims import Claim
from annotate.evidence import Column, Evidence, RecordedWindow, WorkRecord
from annotate.ranges import TOLERANCE_RATIO
from tests.campaign.edits import clocked, is_capped, valued
from tests.campaign.mutator import Mutator, limit_of

_FREE_RATIO = 0.16  # a dense kernel's clock without a cap exceeds its clock under a steady cap by this ratio


def _step(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return None if is_capped(evidence) else _stepping(evidence, multiple * 2.2 * TOLERANCE_RATIO, rng)


def _step_capped(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Put a step into a capped window: the power controller's swing hides a step of the usual size."""
    return _stepping(evidence, multiple * 2.2 * TOLERANCE_RATIO, rng) if is_capped(evidence) else None


def _stepping(evidence: Evidence, step_ratio: float, rng: np.random.Generator) -> Evidence:
    at_s = rng.uniform(0.2, 0.8) * evidence.window.length_s
    return clocked(evidence, lambda s: np.where(s < at_s, 1.0, 1.0 - step_ratio), beta=0.9)


def _late_cap(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Let the power cap engage inside the window, with a higher clock before."""
    begin_ns, end_ns = evidence.window.begin_ns, evidence.window.end_ns
    rise = evidence.increase("power_cap_ns")
    if rise is None or rise.ratio < 0.9:
        return None
    on_ns = begin_ns + round(rng.uniform(0.2, 0.8) * (end_ns - begin_ns))

    def free_before(name: str, about: Evidence) -> Evidence:
        column = about.trace.column(name)
        base = float(np.interp(on_ns, column.at_ns, column.values))
        return valued(about, name, lambda at_ns, values: np.maximum(values, base))

    for name in ("power_cap_ns", "power_violation_ns"):
        evidence = free_before(name, evidence)
    evidence = valued(evidence, "event_reasons_mask", lambda at_ns, mask: np.where(at_ns < on_ns, 0.0, mask))
    on_s = (on_ns - begin_ns) / 1e9
    return clocked(evidence, lambda s: np.where(s < on_s, 1.0 + _FREE_RATIO, 1.0), beta=0.9)


def _pausing(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    busy = 1.0 - multiple * (1.0 - limit_of("bursty-duty-cycle", "busy_ratio"))
    for name in ("utilization_ratio", "mem_utilization_ratio", "sm_activity_ratio"):
        evidence = valued(evidence, name, lambda at_ns, ratio: np.round(np.minimum(ratio, 1.0) * busy, 2))
    evidence = valued(evidence, "power_w", lambda at_ns, power_w: 123.0 + (power_w - 123.0) * busy)
    timings = evidence.timings
    if timings is None:
        return evidence
    # As many iterations as fit into the remaining time, each at its original start time.
    kept = np.flatnonzero(
        np.floor(np.arange(len(timings.at_ns)) * busy) != np.floor((np.arange(len(timings.at_ns)) - 1) * busy)
    )
    clock = None if timings.sm_clock_mhz is None else timings.sm_clock_mhz[kept]
    return replace(
        evidence, timings=replace(timings, at_ns=timings.at_ns[kept], took_s=timings.took_s[kept], sm_clock_mhz=clock)
    )


def _alternating(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Alternate two clocks every second: levels without a named shape."""
    if is_capped(evidence):
        return None
    low_ratio = 1.0 - multiple * 2.5 * TOLERANCE_RATIO
    return clocked(evidence, lambda s: np.where(np.floor(s) % 2 == 0, 1.0, low_ratio), beta=0.9)


def _unnamed(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    """Claim a fixed clock without any observed lock."""
    return evidence


def _off_record(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Add a record of the same work with shorter times."""
    times = evidence.timings
    if times is None:
        return None
    took_s = float(times.took_s.mean()) / (1.0 + multiple * 2.0 * TOLERANCE_RATIO)
    usual = RecordedWindow(mean_s=took_s, median_s=took_s)
    return replace(evidence, record=WorkRecord((usual,) * 6))


def _weaker(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Remove the times, and reduce the power above idle in the second half of the window."""
    if is_capped(evidence):
        return None
    dense, window = evidence.trace.dense_power, evidence.window
    middle_ns = (window.begin_ns + window.end_ns) // 2
    rest_w = evidence.device.idle_power_w if evidence.device and evidence.device.idle_power_w else 123.0
    less = np.where(dense.at_ns > middle_ns, 1.0 - multiple * 3.0 * TOLERANCE_RATIO, 1.0)
    power = Column(dense.at_ns, rest_w + (dense.values - rest_w) * less)
    return replace(evidence, timings=None, other_work=None, trace=replace(evidence.trace, dense_power=power))


MUTATORS = (
    Mutator(rule="record-shift", inject=_off_record, limit="times 2 % above the record's"),
    Mutator(rule="work-levels", inject=_weaker, limit="power above idle 3 % lower for half of the window"),
    Mutator(rule="clock-levels", inject=_alternating, limit="two clocks 2.5 % apart, alternating each second"),
    Mutator(rule="lock-unproven", inject=_unnamed, claim=Claim.FIXED_CLOCK),
    Mutator(rule="regime-change", variant="clock", inject=_step, limit="a step of 2.2 %, no cap"),
    Mutator(rule="regime-change", variant="clock under the cap", inject=_step_capped, limit="a step of 2.2 %"),
    Mutator(rule="regime-change", variant="power cap", inject=_late_cap),
    Mutator(rule="bursty-duty-cycle", inject=_pausing, limit="20 % of the time idle"),
)
