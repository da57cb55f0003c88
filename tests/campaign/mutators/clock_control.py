"""Hazards of clock control: locks, limits, and boards below their record."""

from __future__ import annotations

import numpy as np

from annotate.claims import Claim
from annotate.evidence import Column, Evidence
from annotate.ranges import TOLERANCE_RATIO
from annotate.rule import Severity
from tests.campaign.edits import clocked, declaring, is_capped, valued, with_columns
from tests.campaign.mutator import Mutator, limit_of


def _locked(evidence: Evidence, mhz: float) -> Evidence:
    at_ns = evidence.trace.column("power_limit_w").at_ns
    return with_columns(evidence, sm_clock_lock_mhz=Column(at_ns, np.full(len(at_ns), mhz)))


def _off_lock(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    if is_capped(evidence):
        return None
    off_ratio = multiple * 1.2 * TOLERANCE_RATIO
    return clocked(_locked(evidence, 1980.0), lambda at_s: np.full(len(at_s), 1.0 - off_ratio), beta=0.9)


def _limited(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    less_w = multiple * limit_of("clock-controller-present", "power_tolerance_w") + 1e-3
    return valued(evidence, "power_limit_w", lambda at_ns, limit_w: limit_w - less_w)


def _slow_state(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Put a canary below its record on a board below the power limit; a cap would be a reason for a low clock."""
    if is_capped(evidence):
        return None
    low_ratio = multiple * TOLERANCE_RATIO
    return declaring(evidence, canary_clock_mhz=1980.0 * (1.0 - low_ratio) - 0.5)


def _untrue(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    timings = evidence.timings
    if is_capped(evidence) or timings is None or timings.sm_clock_mhz is None:
        return None
    ratio = 1.0 - multiple * limit_of("nvml-clock-untrue", "limit_ratio")
    return valued(evidence, "sm_clock_mhz", lambda at_ns, mhz: 15.0 * np.round(mhz * ratio / 15.0))


MUTATORS = (
    Mutator(rule="locked-clock-missed", inject=_off_lock, limit="1.2 % below the requested clock", claim=Claim.FIXED_CLOCK),
    Mutator(rule="clock-controller-present", inject=_limited, limit="a power limit 0.5 W below the default"),
    Mutator(rule="clock-low-no-reason", inject=_slow_state, limit="a canary 1 % below its record, no cap"),
    Mutator(rule="nvml-clock-untrue", inject=_untrue, limit="a driver's clock 3 % off", caught=Severity.NOTE),
)
