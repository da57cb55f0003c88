"""The status of a window by conditions alone: proof 3 and its bounds in three passes, with all other proofs shown."""

from __future__ import annotations

from dataclasses import replace

from annotate.answer import Found
from annotate.budget import Bound, Number, Proof, ProofShown, ProofState
from annotate.case import Case
from annotate.claims import Claim
from annotate.combine import Grounds, StatusDecision, decide
from annotate.derived.clock_shift import CLOCK_RULES, clock_bounds
from annotate.evidence import Evidence
from annotate.passes import AskingPass, merge_passes
from annotate.proofs.conditions_held import condition_bounds, prove
from annotate.rules.held_conditions import dark_time
from annotate.user_policy import Policy

_OTHERS = tuple(ProofShown(proof=proof, state=ProofState.SHOWN) for proof in Proof if proof is not Proof.CONDITIONS)


def cases(about: Evidence, claim: Claim = Claim.SUSTAINED) -> dict[AskingPass, Case]:
    return {
        AskingPass.WITNESSED: Case(replace(about, timings=None, other_work=None, declared={}), claim),
        AskingPass.TIMED: Case(replace(about, declared={}), claim),
        AskingPass.DECLARED: Case(about, claim),
    }


def bounds_of(case: Case, *, dark: bool = False) -> tuple[Bound, ...]:
    """Return the bounds of all conditions in one pass and, with ``dark``, those of dark time."""
    found = condition_bounds(case)
    shift = case.clock_shift
    if shift is not None:
        found += tuple(bound for rule in CLOCK_RULES if rule != shift.rule for bound in clock_bounds(shift, rule))
    answer = dark_time.ask_about(case)
    return found + (answer.bounds if dark and isinstance(answer, Found) else ())


def decision(about: Evidence, claim: Claim = Claim.SUSTAINED, *, dark: bool = False) -> StatusDecision:
    """Return the status at a tolerance of 1 %, with the budget behind it."""
    passes = cases(about, claim)
    last = passes[AskingPass.DECLARED]
    grounds = Grounds(
        causes=merge_passes({asking: bounds_of(case, dark=dark) for asking, case in passes.items()}),
        proofs=(*_OTHERS, prove(last, {})),
        is_stamped=last.is_stamped,
        has_times=last.has_times,
    )
    return decide(grounds, Policy(claim=claim))


def bound_ratio(made: StatusDecision, number: Number) -> float:
    """Return the bound of a number: 0 without causes, infinite for a cause without a bound."""
    found = made.budget.number(number)
    if found is None:
        return 0.0
    return float("inf") if found.bound_ratio is None else found.bound_ratio
