"""Hazards of heat, and of the hardware's own protection."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence, Reason
from annotate.ranges import TOLERANCE_RATIO
from tests.campaign.edits import clocked, counted, flagged, stretch
from tests.campaign.mutator import Mutator

_HEAT_RATIO = 0.22  # the slow-down of work on boards with a heat reason
_HALVED_RATIO = 1.0  # the hardware's protection halves the clock, or worse


def _hot(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    length_s = multiple * TOLERANCE_RATIO / _HEAT_RATIO * evidence.window.length_s
    span = stretch(evidence, length_s, rng)
    for name in ("sw_thermal_ns", "thermal_violation_ns"):
        evidence = counted(evidence, name, length_s * 1e9, *span)
    return _slower(flagged(evidence, int(Reason.SW_THERMAL), *span), _HEAT_RATIO, span)


def _slowed(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    refresh_s = evidence.trace.refresh_of_ns("event_reasons_mask") / 1e9
    span = stretch(evidence, max(multiple * TOLERANCE_RATIO * evidence.window.length_s, refresh_s), rng)
    return _slower(flagged(evidence, int(Reason.HW_SLOWDOWN), *span), _HALVED_RATIO, span)


def _slowed_by_heat(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    length_s = multiple * TOLERANCE_RATIO * evidence.window.length_s
    span = stretch(evidence, length_s, rng, margin_s=1.2)
    return _slower(counted(evidence, "hw_thermal_ns", length_s * 1e9, *span), _HALVED_RATIO, span)


def _braked(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    length_s = multiple * TOLERANCE_RATIO * evidence.window.length_s
    span = stretch(evidence, length_s, rng)
    return _slower(counted(evidence, "power_brake_ns", length_s * 1e9, *span), _HALVED_RATIO, span)


def _slower(evidence: Evidence, slow_ratio: float, span: tuple[int, int]) -> Evidence:
    """Lower the clock of a stretch so that its work takes longer by this ratio."""
    begin_s, end_s = ((edge - evidence.window.begin_ns) / 1e9 for edge in span)
    return clocked(evidence, lambda s: np.where((s >= begin_s) & (s < end_s), 1.0 / (1.0 + slow_ratio), 1.0), beta=1.0)


MUTATORS = (
    Mutator(rule="throttle-thermal", inject=_hot, limit="4.5 % of the time slowed by 22 % for heat"),
    Mutator(rule="throttle-hw-slowdown", inject=_slowed, limit="1 % of the time, at least one refresh, at half the clock"),
    Mutator(
        rule="throttle-hw-slowdown",
        variant="counter",
        inject=_slowed_by_heat,
        limit="1 % of the time at half the clock for heat",
    ),
    Mutator(rule="throttle-power-brake", inject=_braked, limit="1 % of the time at half the clock"),
)
