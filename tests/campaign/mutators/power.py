"""Hazards of the power cap, and of another GPU's clock."""

from __future__ import annotations

import numpy as np

from annotate.claims import Claim
from annotate.evidence import Evidence, Reason
from annotate.ranges import TOLERANCE_RATIO
from annotate.rule import Severity
from tests.campaign.edits import clocked, counted, flagged, is_capped, stretch
from tests.campaign.mutator import Mutator, limit_of

_FOLLOWED_RATIO = 0.2


def _capped(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    if is_capped(evidence):
        return None
    length_s = multiple * limit_of("power-limited", "free_ratio") * evidence.window.length_s
    span = stretch(evidence, length_s, rng)
    for name in ("power_cap_ns", "power_violation_ns"):
        evidence = counted(evidence, name, length_s * 1e9, *span)
    return flagged(evidence, int(Reason.SW_POWER_CAP), *span)


def _followed(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    length_s = multiple * TOLERANCE_RATIO / _FOLLOWED_RATIO * evidence.window.length_s
    begin_ns, end_ns = span = stretch(evidence, length_s, rng)
    begin_s, end_s = ((edge - evidence.window.begin_ns) / 1e9 for edge in span)
    slow = 1.0 / (1.0 + _FOLLOWED_RATIO)
    evidence = clocked(evidence, lambda s: np.where((s >= begin_s) & (s < end_s), slow, 1.0), beta=1.0)
    return flagged(counted(evidence, "sync_boost_ns", length_s * 1e9, *span), int(Reason.SYNC_BOOST), begin_ns, end_ns)


def _brief(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    """Cut the window to less than the 0.1 s that the driver's dense power record needs."""
    begin_ns, end_ns = stretch(evidence, 0.08 / multiple, rng)
    return evidence.part(begin_ns, end_ns)


MUTATORS = (
    Mutator(rule="power-limited", inject=_capped, limit="2 % of the time capped", claim=Claim.FIXED_CLOCK),
    Mutator(
        rule="power-reading-stale", inject=_brief, limit="a window of 0.08 s, divided by the multiple", caught=Severity.NOTE
    ),
    Mutator(rule="sync-boost-limited", inject=_followed, limit="5 % of the time held to another GPU's clock, a fifth slower"),
)
