"""Neighbours, listed and hidden, and a processor that was not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, Visibility
from tests.campaign.edits import foreign, hosted, joined, told, valued
from tests.campaign.mutator import Mutator, limit_of

_ALWAYS = (0, 1 << 62)


def _neighbour(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    busy = round(multiple * limit_of("contention-process", "active_ratio") + 0.0049, 2)  # whole points, as the driver says them
    return joined(evidence, foreign(memory_bytes=500_000_000, utilization_ratio=busy), *_ALWAYS)


def _resident(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    total_bytes = evidence.device.memory_total_bytes if evidence.device else None
    held_bytes = int(multiple * limit_of("contention-process", "small_ratio") * (total_bytes or 0))
    return joined(evidence, foreign(memory_bytes=held_bytes, utilization_ratio=0.0), *_ALWAYS)


def _unlisted(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    busy = round(multiple * limit_of("contention-residual", "flag_ratio") + 0.0049, 2)
    return joined(evidence, foreign(listed=False, memory_bytes=None, utilization_ratio=busy), *_ALWAYS)


def _holding(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    more_bytes = multiple * limit_of("contention-residual", "memory_bytes")
    return valued(evidence, "memory_used_bytes", lambda at_ns, used: used + more_bytes)


def _busier(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    beyond = multiple * limit_of("contention-residual", "flag_ratio")
    # From inside a container: where the list is whole and names nobody else, it is the process's own other work.
    censuses = tuple(replace(census, visibility=Visibility.NAMESPACE) for census in evidence.trace.censuses)
    evidence = replace(evidence, trace=replace(evidence.trace, censuses=censuses))
    return told(evidence, busy_ratio=float(np.nanmean(evidence.within("utilization_ratio").values)) - beyond)


def _waiting(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    evidence = valued(evidence, "utilization_ratio", lambda at_ns, ratio: np.round(0.85 * ratio, 2))
    length_s = evidence.window.length_s
    wait_s = multiple * limit_of("cpu-starvation", "wait_ratio") * length_s
    return hosted(evidence, run_wait_s=wait_s, cpu_s=length_s - wait_s, span_s=length_s)


def _quota(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    length_s = evidence.window.length_s
    return hosted(evidence, cgroup_throttled_s=multiple * limit_of("cpu-starvation", "throttled_ratio") * length_s)


def _stolen(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return hosted(evidence, steal_ratio=multiple * limit_of("cpu-starvation", "steal_ratio"))


MUTATORS = (
    Mutator(rule="contention-process", inject=_neighbour, limit="2 % of the GPU's time"),
    Mutator(rule="contention-process", variant="memory", inject=_resident, limit="0.5 % of the memory, at rest"),
    Mutator(rule="contention-residual", inject=_unlisted, limit="5 % of the GPU's time by an unlisted process"),
    Mutator(rule="contention-residual", variant="memory", inject=_holding, limit="64 MB that nobody listed holds"),
    Mutator(rule="contention-residual", variant="told", inject=_busier, limit="utilisation 5 points above the busy time told"),
    Mutator(rule="cpu-starvation", inject=_waiting, limit="5 % of the runnable time waited, GPU 85 % busy"),
    Mutator(rule="cpu-starvation", variant="quota", inject=_quota, limit="1 % of the time stopped by the CPU limit"),
    Mutator(rule="cpu-starvation", variant="steal", inject=_stolen, limit="2 % of the processors taken by the hypervisor"),
)
