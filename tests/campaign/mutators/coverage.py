"""Hazards of the evidence itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, Trace
from tests.campaign.edits import dark, hosted, is_capped, stretch, told
from tests.campaign.mutator import Mutator, limit_of


def _unwatched(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return replace(evidence, trace=Trace(), absence="no daemon was there")


def _unfinished(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return told(evidence, exception="ValueError")


def _gap(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return dark(evidence, *stretch(evidence, multiple * limit_of("sampler-gap", "longest_s"), rng))


def _short(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    name = "shortest_capped_s" if is_capped(evidence) else "shortest_s"
    begin_ns, end_ns = stretch(evidence, limit_of("window-too-short", name) / multiple, rng)
    # At the limit itself a window is long enough: a millisecond less is not.
    return evidence.part(begin_ns, end_ns - 1_000_000)


def _heavy(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    allowed = evidence.host.cpu_allowed_count or 1
    return hosted(
        evidence, watcher_cpu_s=multiple * limit_of("sampler-perturbs", "flag_ratio") * allowed * (evidence.host.span_s or 0.0)
    )


MUTATORS = (
    Mutator(rule="stale-daemon", inject=_unwatched, unobserved=True),
    Mutator(rule="incomplete-body", inject=_unfinished, unobserved=True),
    Mutator(rule="sampler-gap", inject=_gap, limit="0.25 s without a reading"),
    Mutator(rule="sampler-perturbs", inject=_heavy, limit="5 % of the benchmark's processors"),
    Mutator(rule="window-too-short", inject=_short, limit="1 s (3 s under a cap), divided by it"),
)
