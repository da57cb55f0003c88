"""Hazards of work that was missing, interrupted, or outside the times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence
from annotate.ranges import TOLERANCE_RATIO
from tests.campaign.edits import open_ratio, stretch, valued
from tests.campaign.mutator import Mutator, limit_of

_REST_W = 120.0  # power of an H200 with a context and no work


def _elsewhere(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    """Move the work to another GPU: busy shares are zero, and the power is that of an idle GPU."""
    for name in ("utilization_ratio", "mem_utilization_ratio", "sm_activity_ratio", "dram_activity_ratio"):
        evidence = valued(evidence, name, lambda at_ns, ratio: 0.0 * ratio)
    process_lists = tuple(
        replace(process_list, processes=tuple(replace(each, utilization_ratio=0.0) for each in process_list.processes))
        for process_list in evidence.trace.process_lists
    )
    dense = evidence.trace.dense_power
    trace = replace(
        evidence.trace, process_lists=process_lists, dense_power=replace(dense, values=0.0 * dense.values + _REST_W)
    )
    evidence = valued(replace(evidence, trace=trace), "power_w", lambda at_ns, power_w: 0.0 * power_w + _REST_W)
    return valued(evidence, "energy_j", lambda at_ns, joules: joules[0] + (at_ns - at_ns[0]) / 1e9 * _REST_W)


def _stalled(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Insert a stall without iterations, at least ten iterations long."""
    timings = evidence.timings
    if timings is None:
        return None
    length_s = max(1.1 * multiple * TOLERANCE_RATIO * evidence.window.length_s, 10.0 * float(np.median(timings.took_s)))
    begin_ns, end_ns = stretch(evidence, length_s, rng)
    ends_ns = timings.at_ns + (timings.took_s * 1e9).astype(np.int64)
    kept = (ends_ns <= begin_ns) | (timings.at_ns >= end_ns)
    clock_mhz = None if timings.sm_clock_mhz is None else timings.sm_clock_mhz[kept]
    fewer = replace(timings, at_ns=timings.at_ns[kept], took_s=timings.took_s[kept], sm_clock_mhz=clock_mhz)
    return replace(evidence, timings=fewer)


def _too_short(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Shorten the times below the GPU's work by more than the known error of the busy time."""
    timings = evidence.timings
    if timings is None:
        return None
    less_ratio = open_ratio(evidence) + limit_of("unaccounted-time", "error_ratio") + multiple * 2.0 * TOLERANCE_RATIO
    return replace(evidence, timings=replace(timings, took_s=timings.took_s * (1.0 - less_ratio)))


MUTATORS = (
    Mutator(rule="no-work", inject=_elsewhere),
    Mutator(rule="idle-stretch", inject=_stalled, limit="a stall of 1.1 % of the window, at least ten iterations"),
    Mutator(
        rule="unaccounted-time",
        inject=_too_short,
        limit="times 3.3 % too short, in addition to the time of stamps",
    ),
)
