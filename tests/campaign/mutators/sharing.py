"""Hazards of sharing by design, and of distant memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, OtherWindow
from annotate.rule import Severity
from tests.campaign.edits import declaring, devised, foreign, hosted, joined, valued
from tests.campaign.mutator import Mutator, limit_of

_ALWAYS = (0, 1 << 62)


def _mps(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return hosted(evidence, sharing="MPS")


def _virtual(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return devised(evidence, virtualization="vgpu")


def _side_stream(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    beyond = multiple * limit_of("contention-self", "limit_ratio")
    return declaring(evidence, busy_ratio=float(np.nanmean(evidence.within("utilization_ratio").values)) - beyond)


def _streams(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return declaring(evidence, stamp_seen_ratio=1.0 - multiple * (1.0 - limit_of("contention-self", "seen_ratio")))


def _desktop(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    busy = round(multiple * limit_of("display-active", "active_ratio") + 0.0049, 2)
    return joined(evidence, foreign(name="Xorg", graphics=True, memory_bytes=100_000_000, utilization_ratio=busy), *_ALWAYS)


def _far(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return hosted(evidence, numa_nodes="1")


def _narrow(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    middle_ns = (evidence.window.begin_ns + evidence.window.end_ns) // 2
    return valued(evidence, "pcie_width_count", lambda at_ns, lanes: np.where(at_ns < middle_ns, lanes, 8.0))


def _overlapped(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    other = OtherWindow(begin_ns=evidence.window.begin_ns, end_ns=evidence.window.end_ns, pid=60_999, label="another")
    return replace(evidence, overlapping=(other,))


MUTATORS = (
    Mutator(rule="overlapping-window", inject=_overlapped),
    Mutator(rule="contention-shared-partition", inject=_mps),
    Mutator(rule="contention-shared-partition", variant="vGPU", inject=_virtual),
    Mutator(rule="contention-self", inject=_side_stream, limit="utilisation 5 percentage points above the declared busy share"),
    Mutator(rule="contention-self", variant="stamps", inject=_streams, limit="one SM in a hundred not free for a stamp"),
    Mutator(rule="display-active", inject=_desktop, limit="a display that takes 2 % of the GPU"),
    Mutator(rule="numa-pcie-affinity", inject=_far, caught=Severity.NOTE),
    Mutator(rule="numa-pcie-affinity", variant="link", inject=_narrow),
)
