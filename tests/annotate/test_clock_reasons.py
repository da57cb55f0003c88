"""The rules that ``clock_reasons`` names for each clock event reason, against the rules' answers to bit and counter."""

from __future__ import annotations

from functools import cache

import pytest

from annotate.case import Case
from annotate.clock_reasons import REASONS
from annotate.evidence import Fact, Reason
from annotate.rule import Answer, Found
from annotate.rules import RULES
from tests.annotate.builders import Signal, capped_ns, evidence

_COUNTERS = {
    Reason.SW_POWER_CAP: "power_cap_ns",
    Reason.SYNC_BOOST: "sync_boost_ns",
    Reason.SW_THERMAL: "sw_thermal_ns",
    Reason.HW_THERMAL: "hw_thermal_ns",
    Reason.HW_POWER_BRAKE: "power_brake_ns",
}
_VIOLATIONS = ("power_violation_ns", "thermal_violation_ns")
_SLOW_CANARY: dict[str, Fact] = {"canary_clock_mhz": 1727.0, "canary_record_clock_mhz": 1980.0, "canary_record_count": 7}


def _signals(reason: Reason, since_s: float, *, counted: bool) -> dict[str, Signal]:
    """Return the bit of a reason from a time on and, if ``counted``, its counter; ``Reason(0)`` sets no bit."""
    signals: dict[str, Signal] = dict.fromkeys((*_COUNTERS.values(), *_VIOLATIONS), 0 if counted else None)
    if counted and reason in _COUNTERS:
        signals[_COUNTERS[reason]] = capped_ns(since_s)
    return {**signals, "event_reasons_mask": lambda t: int(reason) if t >= since_s else 0}


@cache
def _answers(reason: Reason) -> list[tuple[str, Answer]]:
    """Return every rule's answer about a quiet window, a slow canary, and a clock that falls with the reason's onset."""
    scenes = []
    for counted in (False, True):
        throughout = _signals(reason, -100.0, counted=counted)
        step: Signal = lambda t: 1560 if t >= 3.0 else 1980  # noqa: E731 - a signal over time
        scenes += [
            evidence(signals=throughout),
            evidence(signals=throughout, declared=_SLOW_CANARY),
            evidence(signals=_signals(reason, 3.0, counted=counted) | {"sm_clock_mhz": step}),
        ]
    return [(rule.name, rule.ask_about(case)) for case in map(Case, scenes) for rule in RULES]


def _differs(without: Answer, answer: Answer) -> bool:
    """Return whether the reason adds or removes a finding, or changes the words of one."""
    if isinstance(without, Found) and isinstance(answer, Found):
        return without.facts.get("what") != answer.facts.get("what")
    return isinstance(without, Found) != isinstance(answer, Found)


def _judging(reason: Reason) -> dict[str, tuple[Answer, Answer]]:
    pairs = zip(_answers(Reason(0)), _answers(reason), strict=True)
    return {name: (without, answer) for (name, without), (_, answer) in pairs if _differs(without, answer)}


@pytest.mark.parametrize("reason", [each for each in Reason if each is not Reason.GPU_IDLE], ids=lambda reason: reason.name)
def test_reason_names_the_rules_that_judge_it(reason: Reason) -> None:
    """The bit or the counter of a reason adds, removes or rewords the findings of exactly these rules."""
    assert set(REASONS[reason].rules) == set(_judging(reason)), _judging(reason)


def test_idle_bit_only_removes_clock_findings() -> None:
    """No rule judges an idle GPU by its bit: the bit removes the clock's fall from the readings, and adds no finding."""
    assert REASONS[Reason.GPU_IDLE].rules == ()
    judging = _judging(Reason.GPU_IDLE)
    assert set(judging) == {"regime-change"}
    assert not any(isinstance(answer, Found) for _, answer in judging.values())
