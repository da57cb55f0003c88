"""Hazards of windows compared with another window."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence
from tests.campaign.edits import clocked, declaring, devised, hosted
from tests.campaign.mutator import Mutator, limit_of


def _other_board(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return devised(evidence, uuid="GPU-2") if evidence.baseline else None


def _other_limit(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    if evidence.baseline is None or evidence.device is None:
        return None
    less_w = multiple * limit_of("hardware-mismatch", "power_tolerance_w") + 1e-3
    return devised(evidence, power_limit_w=(evidence.device.power_limit_w or 0.0) - less_w)


def _other_torch(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return declaring(evidence, torch_version="2.8.0") if evidence.baseline else None


def _tf32(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return declaring(evidence, matmul_precision="high") if evidence.baseline else None


def _booted(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return hosted(evidence, boot_id="another") if evidence.baseline else None


def _slower(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    if evidence.baseline is None:
        return None
    less = multiple * limit_of("clock-between-arms", "true_ratio")
    return clocked(evidence, lambda at_s: np.full(len(at_s), 1.0 - less), beta=0.9)


MUTATORS = (
    Mutator(rule="hardware-mismatch", inject=_other_board),
    Mutator(
        rule="hardware-mismatch", variant="power limit", inject=_other_limit, limit="a power limit 0.5 W below the baseline's"
    ),
    Mutator(rule="software-mismatch", inject=_other_torch),
    Mutator(rule="software-mismatch", variant="flags", inject=_tf32),
    Mutator(rule="boot-changed", inject=_booted),
    Mutator(rule="clock-between-arms", inject=_slower, limit="a true clock 1 % below the baseline's"),
)
