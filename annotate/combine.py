"""Budgets, severities and a status from bounds."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum

from annotate.budget import (
    ITSELF,
    PRINTED_RATIO,
    Bound,
    BoundScope,
    Budget,
    Estimate,
    Group,
    Number,
    NumberBudget,
    Proof,
    ProofShown,
    ProofState,
)
from annotate.claims import Claim
from annotate.rule import Severity
from annotate.user_policy import Policy
from annotate.verdict import Status

REJECT_TOLERANCES = 5.0  # nearer ends of estimates that add up to more than this many tolerances reject

CLAIMED: Mapping[Claim, tuple[Number, ...]] = {
    Claim.SUSTAINED: (Number.THROUGHPUT, Number.MEAN),
    Claim.BURST: (Number.MEDIAN,),
    Claim.FIXED_CLOCK: (Number.MEAN, Number.MEDIAN_AT_CLOCK),
}
_WEIGHT = (Severity.NOTE, Severity.FLAG, Severity.REJECT)
_STATUS = {Severity.NOTE: Status.VALID, Severity.FLAG: Status.FLAGGED, Severity.REJECT: Status.REJECTED}
_ALWAYS_ASKED = (Proof.WORK_SEEN, Proof.BOOKS, Proof.CONDITIONS, Proof.NOBODY_ELSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """Everything that decides the status of one window, except the policy."""

    numbers: tuple[NumberBudget, ...] = ()  # as measured, with repeatability, without causes
    causes: tuple[Bound, ...] = ()  # merged over all passes, in the order of RULES
    integrity: Mapping[str, Severity] = field(default_factory=dict)  # severities above note that rules set, by rule
    proofs: tuple[ProofShown, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)  # reasons of unanswered required and failed rules, without labels
    is_stamped: bool = False
    has_times: bool = False
    are_times_outside: bool = False  # no usable time lies in the window
    leading: Number | None = None
    scope: BoundScope = ITSELF


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDecision:
    """The status, the budget behind it, and the severity of each rule's causes."""

    status: Status
    budget: Budget
    severities: Mapping[str, Severity]  # by rule; for an accepted rule, the severity without acceptance
    why: str  # the unproven parts, separated by semicolons; else empty


def combine(measured: NumberBudget, causes: Iterable[Bound], *, is_stamped: bool) -> NumberBudget:
    """Return the number's budget: the sum of the bounds that count, or no bound if one of these causes has none.

    Raw times follow the clock, so ``times`` and ``clock`` are one group if the clock was not stamped.
    """
    about = (bound for bound in causes if bound.number is measured.number)
    joined = (replace(bound, group=Group.CLOCK) if bound.group is Group.TIMES and not is_stamped else bound for bound in about)
    budget = replace(measured, bounds=tuple(sorted(joined, key=lambda bound: -bound.size_ratio)))
    counted = budget.counted
    ratios = [bound.ratio for bound in counted]
    estimates = [bound.estimate for bound in counted if bound.estimate]
    # A bound of the whole number may have no estimate: then the estimates of the causes add up.
    estimates = estimates or [each.estimate for each in budget.largest if each.estimate and each.group is not Group.WHOLE]
    return replace(
        budget,
        bound_ratio=None if None in ratios else fsum(ratio for ratio in ratios if ratio is not None),
        estimate=_sum(estimates) if estimates else None,
    )


def severity(budget: NumberBudget, tolerance_ratio: float) -> Severity:
    """Return the severity that the causes of one number give to the status: note if they have no effect."""
    if any(_rejecting(budget, tolerance_ratio)):
        return Severity.REJECT
    if budget.bound_ratio is None or budget.bound_ratio > tolerance_ratio:
        return Severity.FLAG
    return Severity.NOTE


def decide(grounds: Grounds, policy: Policy) -> StatusDecision:
    """Return status and budget.  The bounds of an accepted rule stay in the budget and do not affect the status."""
    claimed = _claimed(grounds, policy.claim)
    numbers = _budgets(grounds, claimed, frozenset())
    whole = [each for each in numbers if each.number in claimed]
    accepting = _budgets(grounds, claimed, policy.accept) if policy.accept else numbers
    judged = [each for each in accepting if each.number in claimed]
    unproven = (*_unproven(grounds, policy), *_unrepeated(judged, policy))
    counting = [found for rule, found in grounds.integrity.items() if rule not in policy.accept]
    counting += [severity(each, policy.tolerance_ratio) for each in judged]
    statuses = [_STATUS[found] for found in counting]
    if any(_is_broken(proof, policy) for proof in grounds.proofs) or any(_is_imprecise(each, policy) for each in judged):
        statuses.append(Status.FLAGGED)
    if unproven:
        statuses.append(Status.UNPROVEN)
    severities = _severities(judged, policy.tolerance_ratio)
    as_if_not_accepted = _severities(whole, policy.tolerance_ratio) if policy.accept else severities
    breaking = {rule: Severity.FLAG for proof in grounds.proofs for rule in proof.broken_by}
    budget = Budget(
        tolerance_ratio=policy.tolerance_ratio,
        precision_ratio=policy.precision_ratio,
        claimed=claimed,
        leading=grounds.leading,
        numbers=numbers,
        proofs=grounds.proofs,
        scope=grounds.scope,
    )
    return StatusDecision(
        status=max(statuses, key=lambda status: status.badness, default=Status.VALID),
        budget=budget,
        severities={
            rule: max(
                (as_if_not_accepted if rule in policy.accept else severities).get(rule, Severity.NOTE),
                breaking.get(rule, Severity.NOTE),
                key=_WEIGHT.index,
            )
            for rule in (*breaking, *(bound.rule for bound in grounds.causes))
        },
        why="; ".join(unproven),
    )


def _claimed(grounds: Grounds, claim: Claim) -> tuple[Number, ...]:
    """Return the numbers that decide the status.

    With times, these are the claim's.  Without times in the window, throughput counts.  Compared windows add the ratio.
    """
    numbers = CLAIMED[claim] if grounds.has_times else ()
    if Number.THROUGHPUT not in numbers and (not grounds.has_times or grounds.are_times_outside):
        numbers = (*numbers, Number.THROUGHPUT)
    compared = any(bound.number is Number.RATIO for bound in grounds.causes)
    return (*numbers, Number.RATIO) if compared else numbers


def _budgets(grounds: Grounds, claimed: Iterable[Number], accepted: Collection[str]) -> tuple[NumberBudget, ...]:
    """Return the budget of every number that was measured, is claimed or has a cause, without the causes of accepted rules."""
    measured = {each.number: each for each in grounds.numbers}
    wanted = {*measured, *claimed, *(bound.number for bound in grounds.causes)}
    causes = [bound for bound in grounds.causes if bound.rule not in accepted]
    return tuple(
        combine(measured.get(number) or NumberBudget(number=number), causes, is_stamped=grounds.is_stamped)
        for number in Number
        if number in wanted
    )


def _rejecting(budget: NumberBudget, tolerance_ratio: float) -> tuple[bool, bool]:
    """Return whether the causes prove an increase, and a decrease, of the number that rejects.

    A group counts at its farthest estimate.  Other causes of the group, such as a larger bound without an estimate, cannot
    hide that estimate.
    """
    above: dict[Group, float] = {}
    below: dict[Group, float] = {}
    for bound in budget.bounds:
        if bound.can_reject and bound.estimate:
            above[bound.group] = max(above.get(bound.group, 0.0), bound.estimate.above_ratio)
            below[bound.group] = max(below.get(bound.group, 0.0), bound.estimate.below_ratio)
    return _together(above) > REJECT_TOLERANCES * tolerance_ratio, _together(below) > REJECT_TOLERANCES * tolerance_ratio


def _together(ends: Mapping[Group, float]) -> float:
    """Return the least change that all groups prove: the sum of the causes, or the change of ``whole`` if that is larger."""
    return max(fsum(each for group, each in ends.items() if group is not Group.WHOLE), ends.get(Group.WHOLE, 0.0))


def _severities(budgets: Iterable[NumberBudget], tolerance_ratio: float) -> dict[str, Severity]:
    """Return the severity of each rule: the worst over the numbers for which the rule's cause is large enough to count."""
    found: dict[str, Severity] = {}
    for budget in budgets:
        made = severity(budget, tolerance_ratio)
        flagging, rejecting = _flagging(budget, tolerance_ratio), _rejecting(budget, tolerance_ratio)
        for bound in budget.bounds:
            mine = Severity.NOTE
            if _rejects(bound, rejecting, PRINTED_RATIO * tolerance_ratio):
                mine = Severity.REJECT
            elif made is not Severity.NOTE and any(bound is each for each in flagging):
                mine = Severity.FLAG
            found[bound.rule] = max(found.get(bound.rule, Severity.NOTE), mine, key=_WEIGHT.index)
    return found


def _rejects(bound: Bound, rejecting: tuple[bool, bool], least_ratio: float) -> bool:
    if not bound.can_reject or bound.estimate is None:
        return False
    above, below = rejecting
    return (above and bound.estimate.above_ratio >= least_ratio) or (below and bound.estimate.below_ratio >= least_ratio)


def _flagging(budget: NumberBudget, tolerance_ratio: float) -> list[Bound]:
    """Return the causes without a bound, and the largest others: without them the rest of the counted causes is tolerable."""
    found = [each for each in budget.bounds if each.ratio is None]
    for adding in (budget.counted, [each for each in budget.largest if each.group is not Group.WHOLE]):
        rest = [each for each in adding if each.ratio is not None]
        while fsum(each.size_ratio for each in rest) > tolerance_ratio:
            found.append(rest.pop(0))
    return found


def _unproven(grounds: Grounds, policy: Policy) -> tuple[str, ...]:
    """Return the rules and proofs without an answer, each with the reason; the fifth proof is required only with times.

    A broken proof has an answer, unless the policy accepts its rules: then its evidence must be complete.
    """
    answered = {
        proof.proof
        for proof in grounds.proofs
        if proof.state is ProofState.SHOWN
        or _is_broken(proof, policy)
        or (proof.state is ProofState.BROKEN and not proof.missing)
    }
    reasons = {proof.proof: ", ".join(proof.missing) for proof in grounds.proofs}
    asked = (*_ALWAYS_ASKED, Proof.STEADY_TIMES) if grounds.has_times else _ALWAYS_ASKED
    lacking = [f"{proof}: {reasons.get(proof) or 'not shown'}" for proof in asked if proof not in answered]
    return (*(f"{name}: {reason}" for name, reason in grounds.missing.items()), *lacking)


def _is_broken(proof: ProofShown, policy: Policy) -> bool:
    return proof.state is ProofState.BROKEN and not (proof.broken_by and policy.accept.issuperset(proof.broken_by))


def _is_imprecise(budget: NumberBudget, policy: Policy) -> bool:
    ratio = budget.repeatability.ratio
    return policy.precision_ratio is not None and ratio is not None and ratio > policy.precision_ratio


def _unrepeated(budgets: Iterable[NumberBudget], policy: Policy) -> tuple[str, ...]:
    if policy.precision_ratio is None:
        return ()
    return tuple(
        f"{each.number}: repeatability unknown ({each.repeatability.kind})"
        for each in budgets
        if each.repeatability.ratio is None
    )


def _sum(estimates: Collection[Estimate]) -> Estimate:
    return Estimate(
        fsum(each.low_ratio for each in estimates),
        fsum(each.value_ratio for each in estimates),
        fsum(each.high_ratio for each in estimates),
    )
