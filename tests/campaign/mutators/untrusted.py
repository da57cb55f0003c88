"""Hazards of numbers claimed by code that may cheat, shorter than the GPU's work."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence
from tests.campaign.edits import declaring
from tests.campaign.mutator import Mutator, limit_of


def _too_short(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Claim less work than the window's busy time, by the multiple of the limit."""
    busy_ratio = evidence.within("utilization_ratio").mean()
    if not busy_ratio or evidence.window.length_s < 1.0:
        return None
    count = 10_000
    off = 0.03 + multiple * limit_of("claimed-work", "off_ratio")
    call_s = busy_ratio * evidence.window.length_s / count / (1.0 + off)
    return declaring(evidence, untrusted=True, claimed_calls_count=count, claimed_call_s=call_s)


MUTATORS = (Mutator(rule="claimed-work", inject=_too_short, limit="5 % of the claimed time, and 3 % for the witness"),)
