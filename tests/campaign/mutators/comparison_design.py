"""Hazards of a comparison's design."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence
from annotate.rule import Severity
from tests.campaign.edits import declaring
from tests.campaign.mutator import Mutator


def _in_turn(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    base = evidence.baseline
    if base is None:
        return None
    shift_ns = 60_000_000_000
    earlier = replace(base.window, begin_ns=base.window.begin_ns - shift_ns, end_ns=base.window.end_ns - shift_ns)
    columns = {name: replace(column, at_ns=column.at_ns - shift_ns) for name, column in base.trace.columns.items()}
    timings = base.timings and replace(base.timings, at_ns=base.timings.at_ns - shift_ns)
    return replace(
        evidence, baseline=replace(base, window=earlier, trace=replace(base.trace, columns=columns), timings=timings)
    )


def _no_floor(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return declaring(evidence, aa_floor_ratio=None) if evidence.baseline else None


def _picked(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Pick the best of twenty windows, without times, because steady times would show that luck had little effect."""
    return replace(declaring(evidence, variants_count=20), timings=None) if evidence.baseline else None


MUTATORS = (
    Mutator(rule="order-bias", inject=_in_turn),
    Mutator(rule="aa-noise-floor-missing", inject=_no_floor, caught=Severity.NOTE),
    Mutator(rule="multiple-looks", inject=_picked),
)
