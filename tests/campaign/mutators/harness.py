"""Hazards of the harness around the work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence
from annotate.ranges import TOLERANCE_RATIO
from tests.campaign.edits import declaring, hosted, is_capped, valued
from tests.campaign.mutator import Mutator, limit_of


def _injected(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return hosted(evidence, profilers="library:libToolsInjection64.so,variable:NSYS_PROFILING_SESSION_ID")


def _asking(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    limit = TOLERANCE_RATIO / limit_of("allocator-churn", "call_s")
    return declaring(evidence, alloc_count=int(multiple * limit * evidence.window.length_s) + 1)


def _growing(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    """Change the memory in use at a share of its refreshes, without declared allocator statistics."""
    share = multiple * limit_of("allocator-churn", "changed_ratio")
    begin_ns, refresh_ns = evidence.window.begin_ns, evidence.trace.refresh_of_ns("memory_used_bytes")
    count = int(evidence.window.length_ns // refresh_ns) + 1
    level = np.cumsum(rng.random(count) < share)

    def held(at_ns: np.ndarray, used: np.ndarray) -> np.ndarray:
        place = np.clip((at_ns - begin_ns) // refresh_ns, 0, count - 1)
        inside = (at_ns >= begin_ns) & (at_ns < evidence.window.end_ns)
        return np.asarray(used + np.where(inside, 2.0e8 * (level[place] % 3), 0.0))

    untimed = replace(evidence, timings=None)  # times show the cost of allocations, and clean times show none
    return declaring(valued(untimed, "memory_used_bytes", held), alloc_count=None, alloc_retry_count=None)


def _zeros(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Declare easy data on a board at its power limit; on others, easy data gives no higher clock and is only a label."""
    if not is_capped(evidence):
        return None
    return declaring(evidence, input_zero_ratio=min(1.0, multiple * limit_of("data-dependent-power", "zero_ratio") + 1e-6))


def _constants(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    if not is_capped(evidence):
        return None
    return declaring(evidence, input_unique_ratio=limit_of("data-dependent-power", "unique_ratio") / multiple - 1e-6)


def _company(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    cpu_s = multiple * limit_of("background-thread", "busy_ratio") * (evidence.host.span_s or 0.0) + 1e-6
    return hosted(evidence, threads_born_count=1, born_cpu_s=cpu_s)


MUTATORS = (
    Mutator(rule="profiler-attached", inject=_injected),
    Mutator(rule="allocator-churn", inject=_asking, limit="1 % of the window, at a millisecond per request to the driver"),
    Mutator(rule="allocator-churn", variant="untold", inject=_growing, limit="memory in use changed in 20 % of its refreshes"),
    Mutator(rule="data-dependent-power", inject=_zeros, limit="60 % zeros, at most all, under the cap"),
    Mutator(
        rule="data-dependent-power",
        variant="constants",
        inject=_constants,
        limit="1 % distinct values, divided by the multiple, under the cap",
    ),
    Mutator(rule="background-thread", inject=_company, limit="a new thread that runs 5 % of the time"),
)
