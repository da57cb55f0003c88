"""Verdicts at a reference clock that the policy sets, and the clock of a median under ``fixed-clock``."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from annotate.budget import Number, NumberBudget
from annotate.claims import Claim
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.output.report import html, markdown, text
from annotate.times.reference_clock import ReferenceClock
from annotate.user_policy import Policy
from annotate.verdict import Verdict
from tests.annotate.builders import evidence
from tests.annotate.derived.test_measured_numbers import STEADY, swinging
from tests.annotate.derived.test_time_levels import timed


def capped() -> Evidence:
    took_s, clock_mhz = swinging()
    return timed(took_s, mhz=clock_mhz, capped=True)


def at_clock(verdict: Verdict) -> NumberBudget:
    found = verdict.budget.number(Number.MEDIAN_AT_CLOCK) if verdict.budget is not None else None
    assert found is not None
    return found


def off_labels(verdict: Verdict) -> list[str]:
    return [label for label in verdict.labels if label.startswith("no time at")]


@pytest.mark.parametrize("clock", [1410, {"NVIDIA H200": 1410.0, "NVIDIA H100": 1200.0}])
def test_verdict_states_the_median_at_the_set_clock(clock: ReferenceClock) -> None:
    """Every form names the set clock beside the number, and the stored verdict keeps it."""
    verdict = judge(capped(), Policy(reference_clock_mhz=clock))
    assert at_clock(verdict).clock_mhz == 1410.0
    assert at_clock(verdict).value == pytest.approx(1e-3 * (1400.0 / 1410.0) ** 0.9, rel=2e-3)
    assert off_labels(verdict) == []
    for form in (text(verdict), markdown(verdict), html([verdict])):
        assert "median at 1410 MHz" in form
    stored = Verdict.from_dict(json.loads(json.dumps(verdict.to_dict())))
    assert stored.policy["reference_clock_mhz"] == clock
    assert at_clock(stored) == at_clock(verdict)


def test_table_of_other_models_keeps_the_recorded_clock() -> None:
    verdict = judge(capped(), Policy(reference_clock_mhz={"NVIDIA H100": 1200.0}))
    assert (at_clock(verdict).clock_mhz, off_labels(verdict)) == (1500.0, [])


@pytest.mark.parametrize(
    ("about", "mhz", "why"),
    [
        (capped(), 1000.0, "the window ran too far away, at 1400 MHz"),
        (capped(), 2100.0, "the card's highest SM clock is 1980 MHz"),
        (timed(STEADY, mhz=1975.0), 1800.0, "the clock stayed at 1975 MHz, so the effect of another clock is unknown"),
        (timed(STEADY, mhz=None), 1800.0, "nothing stamped the clock"),
    ],
)
def test_unreachable_clock_is_named_with_the_reason(about: Evidence, mhz: float, why: str) -> None:
    """The number stays at the window's clock, and every form states the reason."""
    verdict = judge(about, Policy(reference_clock_mhz=mhz))
    assert off_labels(verdict) == [f"no time at {mhz:.0f} MHz: {why}"]
    assert at_clock(verdict).clock_mhz == at_clock(judge(about, Policy(reference_clock_mhz=mhz + 1.0))).clock_mhz != mhz
    for form in (text(verdict), markdown(verdict), html([verdict])):
        assert f"no time at {mhz:.0f} MHz" in form


def test_steady_clock_at_the_set_clock_has_no_label() -> None:
    about = timed(STEADY, mhz=1975.0)
    for claim in (Claim.SUSTAINED, Claim.FIXED_CLOCK):
        assert off_labels(judge(about, Policy(claim=claim, reference_clock_mhz=1975.0))) == []


def test_recorded_clock_out_of_reach_has_no_label() -> None:
    """A clock of the table is a default: without a way to it, the number stands at the window's clock."""
    took_s, clock_mhz = swinging()
    verdict = judge(timed(took_s, mhz=clock_mhz * 0.7, capped=True))
    assert at_clock(verdict).clock_mhz == pytest.approx(980.0, abs=5.0)
    assert off_labels(verdict) == []


@pytest.mark.parametrize("clock", [None, 1500.0])
def test_fixed_clock_quotes_the_median_at_its_bounds_clock(clock: float | None) -> None:
    """The median stands at the window's own clock, and the estimate leads from there to the named clock."""
    seen = evidence(length_s=6.0, signals={"sm_clock_mhz": 1400})
    about = replace(capped(), trace=seen.trace, declared={"locked_mhz": 1380.0})
    verdict = judge(about, Policy(claim=Claim.FIXED_CLOCK, reference_clock_mhz=clock))
    found = at_clock(verdict)
    assert found.clock_mhz == pytest.approx(1400.0, abs=2.0)
    missed = next(bound.estimate for bound in found.bounds if bound.rule == "locked-clock-missed")
    assert missed is not None
    assert found.value is not None
    at_named_s = found.value / (1.0 + missed.value_ratio)
    assert at_named_s == pytest.approx(1e-3 * (1400.0 / 1380.0) ** 0.9, rel=2e-3)
    why = "no time at 1500 MHz: the claim fixed-clock is about the locked clock"
    assert off_labels(verdict) == ([] if clock is None else [why])
