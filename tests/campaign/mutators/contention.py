"""Hazards of neighbours, listed and hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, Visibility
from annotate.ranges import TOLERANCE_RATIO
from tests.campaign.edits import foreign, joined, open_ratio, valued
from tests.campaign.mutator import Mutator, limit_of

_ALWAYS = (0, 1 << 62)


def _neighbour(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    busy = round(multiple * limit_of("contention-process", "active_ratio") + 0.0049, 2)  # the driver reports whole percents
    return joined(evidence, foreign(memory_bytes=500_000_000, utilization_ratio=busy), *_ALWAYS)


def _unlisted(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    busy = round(multiple * limit_of("contention-process", "active_ratio") + 0.0049, 2)
    return joined(evidence, foreign(listed=False, memory_bytes=None, utilization_ratio=busy), *_ALWAYS)


def _holding(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    more_bytes = multiple * limit_of("contention-residual", "memory_bytes")
    return valued(evidence, "memory_used_bytes", lambda at_ns, used: used + more_bytes)


def _busier(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    beyond = open_ratio(evidence) + limit_of("contention-residual", "error_ratio") + multiple * 2.0 * TOLERANCE_RATIO
    # In a container that hides even the window's own process, only the times reveal the neighbour.
    process_lists = tuple(replace(each, processes=(), visibility=Visibility.NAMESPACE) for each in evidence.trace.process_lists)
    evidence = replace(evidence, trace=replace(evidence.trace, process_lists=process_lists))
    timings = evidence.timings
    if timings is None:
        return None
    return replace(evidence, timings=replace(timings, took_s=timings.took_s * (1.0 - beyond)))


MUTATORS = (
    Mutator(rule="contention-process", inject=_neighbour, limit="2 % of the GPU's time"),
    Mutator(rule="contention-residual", inject=_unlisted, limit="2 % of the GPU's time by an unlisted process"),
    Mutator(rule="contention-residual", variant="memory", inject=_holding, limit="64 MB that no listed process holds"),
    Mutator(
        rule="contention-residual",
        variant="times",
        inject=_busier,
        limit="3.3 % of busy time beyond times and stamps",
    ),
)
