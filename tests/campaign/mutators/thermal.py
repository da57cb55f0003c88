"""Heat, and the hardware's own protection."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence, Reason
from tests.campaign.edits import counted, flagged, stretch
from tests.campaign.mutator import Mutator, limit_of


def _hot(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    length_s = multiple * limit_of("throttle-thermal", "flag_ratio") * evidence.window.length_s
    span = stretch(evidence, length_s, rng)
    for name in ("sw_thermal_ns", "thermal_violation_ns"):
        evidence = counted(evidence, name, length_s * 1e9, *span)
    return evidence


def _slowed(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    refresh_s = evidence.trace.refresh_of_ns("event_reasons_mask") / 1e9
    length_s = multiple * limit_of("throttle-hw-slowdown", "refreshes_count") * refresh_s
    return flagged(evidence, int(Reason.HW_SLOWDOWN), *stretch(evidence, length_s, rng))


def _slowed_by_heat(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    length_s = multiple * limit_of("throttle-hw-slowdown", "counted_s")
    return counted(evidence, "hw_thermal_ns", length_s * 1e9, *stretch(evidence, length_s, rng, margin_s=1.2))


def _braked(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return counted(evidence, "power_brake_ns", 5e6, *stretch(evidence, 0.005, rng))


MUTATORS = (
    Mutator(rule="throttle-thermal", inject=_hot, limit="0.1 % of the time slowed for heat"),
    Mutator(rule="throttle-hw-slowdown", inject=_slowed, limit="two refreshes of the sampled reason"),
    Mutator(
        rule="throttle-hw-slowdown", variant="counter", inject=_slowed_by_heat, limit="1 ms slowed by the hardware for heat"
    ),
    Mutator(rule="throttle-power-brake", inject=_braked),
)
