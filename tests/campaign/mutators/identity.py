"""Hazards of settings, errors and persistence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Event, Evidence
from tests.campaign.edits import counted, declaring, devised, hosted, stretch, valued
from tests.campaign.mutator import Mutator, limit_of


def _other_limit(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    less_w = multiple * limit_of("setting-changed", "power_tolerance_w") + 1e-3
    at_ns, _ = stretch(evidence, 0.0, rng, margin_s=0.5)
    return valued(evidence, "power_limit_w", lambda times, limit_w: np.where(times < at_ns, limit_w, limit_w - less_w))


def _replaying(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    count = np.floor(multiple * limit_of("hardware-error", "replays_count")) + 1
    return counted(evidence, "pcie_replay_count", count, *stretch(evidence, 0.5, rng, margin_s=0.0))


def _corrected(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return counted(evidence, "ecc_corrected_count", 1.0, *stretch(evidence, 0.0, rng))


def _message(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    at_ns, _ = stretch(evidence, 0.0, rng)
    uuid = evidence.device.uuid if evidence.device else ""
    events = (*evidence.trace.events, Event(uuid=uuid, at_ns=at_ns, kind="xid", value=48))
    return replace(evidence, trace=replace(evidence.trace, events=events))


def _not_persistent(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    alone_ns = evidence.window.begin_ns - 2_500_000_000
    evidence = valued(devised(evidence, persistence_mode=False), "persistence_mode", lambda at_ns, mode: 0.0 * mode)
    process_lists = tuple(replace(c, processes=() if c.at_ns < alone_ns else c.processes) for c in evidence.trace.process_lists)
    return replace(evidence, trace=replace(evidence.trace, process_lists=process_lists))


def _elsewhen(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    timings = evidence.timings
    if timings is None:
        return None
    off_ns = int(multiple * limit_of("clock-source-step", "step_s") * 1e9) + 1_000
    late_ns = evidence.window.end_ns - int(timings.at_ns.max()) + off_ns
    return replace(evidence, timings=replace(timings, at_ns=timings.at_ns + late_ns))


def _stepped(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    step_s = multiple * limit_of("clock-source-step", "step_s") + 1e-6
    return declaring(hosted(evidence, wall_step_s=step_s), timer="caller")


MUTATORS = (
    Mutator(rule="setting-changed", inject=_other_limit, limit="a power limit lowered by 0.5 W inside the window"),
    Mutator(rule="hardware-error", inject=_replaying, limit="8 PCIe replays"),
    Mutator(rule="hardware-error", variant="memory", inject=_corrected),
    Mutator(rule="hardware-error", variant="Xid", inject=_message),
    Mutator(rule="persistence-off", inject=_not_persistent),
    Mutator(rule="clock-source-step", inject=_stepped, limit="a wall clock that steps by 5 ms, times by the caller"),
    Mutator(rule="clock-source-step", variant="times", inject=_elsewhen, limit="times 5 ms outside the window"),
)
