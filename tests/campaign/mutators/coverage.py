"""Hazards of the evidence itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import STALE_NS, Evidence, Trace
from tests.campaign.edits import dark, declaring, hosted, stretch
from tests.campaign.mutator import Mutator, limit_of


def _unwatched(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return replace(evidence, trace=Trace(), absence="no daemon was running")


def _unfinished(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return declaring(evidence, exception="ValueError")


def _gap(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    # A list stays valid for a while after its reading.
    return dark(evidence, *stretch(evidence, multiple * limit_of("dark-time", "lists_s") + STALE_NS / 1e9, rng))


def _heavy(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    allowed = evidence.host.cpu_allowed_count or 1
    return hosted(
        evidence,
        watcher_cpu_s=multiple * limit_of("sampler-perturbs", "allowed_ratio") * allowed * (evidence.host.span_s or 0.0),
    )


MUTATORS = (
    Mutator(rule="stale-daemon", inject=_unwatched, unobserved=True),
    Mutator(rule="incomplete-body", inject=_unfinished, unobserved=True),
    Mutator(rule="dark-time", inject=_gap, limit="0.5 s without a valid process list"),
    Mutator(rule="sampler-perturbs", inject=_heavy, limit="5 % of the benchmark's CPUs"),
)
