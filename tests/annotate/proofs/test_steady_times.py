"""Tests of proof 5: the times represent the work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.answer import Answer, Clear, Found, Severity
from annotate.budget import ProofShown, ProofState
from annotate.case import Case
from annotate.claims import Claim
from annotate.evidence import Evidence, Timings
from annotate.proofs.steady_times import NOT_SHOWN, prove
from tests.annotate.builders import evidence
from tests.annotate.derived.test_time_levels import GROWING, STEPPING, noisy, timed

STEADY = timed(noisy(np.full(3000, 1e-3)))


def shown(about: Evidence, claim: Claim = Claim.SUSTAINED, **found: Answer) -> ProofShown:
    return prove(Case(about, claim), {name.replace("_", "-"): answer for name, answer in found.items()})


def test_steady_times_are_shown_with_their_steadiness() -> None:
    proof = shown(STEADY)
    assert proof.state is ProofState.SHOWN
    assert proof.says == "times steady to 0.02 %"


def test_window_without_times_does_not_need_the_proof() -> None:
    proof = shown(evidence())
    assert (proof.state, proof.says) == (ProofState.NOT_ASKED, NOT_SHOWN)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        (timed(GROWING), "times grow by 29.4 %"),
        (timed(GROWING[::-1].copy()), "times shrink by 22.7 %"),
        (timed(STEPPING), "times at levels up to 10.0 % apart"),
        (timed(np.full(6, 0.1)), "6 times, too few to show levels"),
        (replace(timed(STEPPING), declared={"varies": True}), "times vary by design"),
    ],
)
def test_uneven_times_leave_the_proof_shown(about: Evidence, says: str) -> None:
    """Growth, levels, varying work and too few times to show levels do not break the proof."""
    proof = shown(about)
    assert proof.state is ProofState.SHOWN
    assert proof.says == says


@pytest.mark.parametrize("count", [1, 5])
def test_fewer_than_six_times_are_unproven(count: int) -> None:
    proof = shown(timed(np.full(count, 0.1)))
    assert proof.state is ProofState.UNPROVEN
    assert proof.missing == (f"6 timed iterations inside the window (found {count})",)


def test_times_outside_the_window_are_unproven() -> None:
    assert STEADY.timings is not None
    early = Timings(STEADY.timings.at_ns - 60 * 10**9, STEADY.timings.took_s)
    assert shown(replace(STEADY, timings=early)).missing == ("6 timed iterations inside the window (found 0)",)


@pytest.mark.parametrize(("claim", "state"), [(Claim.SUSTAINED, ProofState.SHOWN), (Claim.FIXED_CLOCK, ProofState.UNPROVEN)])
def test_fixed_clock_needs_stamped_times(claim: Claim, state: ProofState) -> None:
    assert shown(timed(noisy(np.full(3000, 1e-3)), mhz=None), claim).state is state


@pytest.mark.parametrize("name", ["timer-tampered", "impossible-time", "clock-source-step"])
def test_rejected_times_break_the_proof(name: str) -> None:
    """A proof broken by rejected times names the rule, so that a policy can accept that rule."""
    proof = prove(Case(STEADY), {name: Found(Severity.REJECT)})
    assert proof.state is ProofState.BROKEN
    assert proof.broken_by == (name,)


@pytest.mark.parametrize("answer", [Found(Severity.NOTE), Clear()])
def test_milder_answers_leave_the_proof_shown(answer: Answer) -> None:
    assert shown(STEADY, timer_tampered=answer).state is ProofState.SHOWN
