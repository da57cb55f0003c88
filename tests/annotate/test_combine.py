"""Tests of the budgets, severities and status that follow from bounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.budget import Bound, Group, Number, NumberBudget, Proof, ProofShown, ProofState, Repeatability
from annotate.claims import Claim
from annotate.combine import CLAIMED, Grounds, combine, decide, severity
from annotate.rule import Severity
from annotate.user_policy import Policy
from annotate.verdict import Status
from tests.annotate import bounds as made
from tests.annotate.bounds import SHOWN, cause, clean

WEIGHT = list(Severity)


def throughput(*causes: Bound, is_stamped: bool = True) -> NumberBudget:
    return combine(NumberBudget(number=Number.THROUGHPUT), causes, is_stamped=is_stamped)


def size(budget: NumberBudget) -> float:
    return float("inf") if budget.bound_ratio is None else budget.bound_ratio


@given(made.causes, made.bounds(), st.sampled_from(Number), st.booleans())
def test_combine_never_lowers_a_bound_for_a_cause(
    causes: tuple[Bound, ...], added: Bound, number: Number, is_stamped: bool
) -> None:
    """A further cause lowers neither the bound of a number nor the severity."""
    about = NumberBudget(number=number)
    before, after = (combine(about, found, is_stamped=is_stamped) for found in (causes, (*causes, added)))
    assert size(after) >= size(before)
    for tolerance_ratio in (0.001, 0.01, 0.1):
        assert WEIGHT.index(severity(after, tolerance_ratio)) >= WEIGHT.index(severity(before, tolerance_ratio))


@given(made.causes, st.sampled_from(Number), st.booleans(), st.randoms())
def test_combine_does_not_depend_on_order(causes: tuple[Bound, ...], number: Number, is_stamped: bool, random: Random) -> None:
    shuffled = list(causes)
    random.shuffle(shuffled)
    about = NumberBudget(number=number)
    one, other = (combine(about, found, is_stamped=is_stamped) for found in (causes, shuffled))
    assert (one.bound_ratio, sorted(map(repr, one.bounds))) == (other.bound_ratio, sorted(map(repr, other.bounds)))
    assert severity(one, 0.01) is severity(other, 0.01)


@given(made.causes, st.sampled_from(Number))
def test_combine_counts_a_group_once(causes: tuple[Bound, ...], number: Number) -> None:
    """The bound is the sum of each group's largest, or that of the whole number; the budget keeps every cause."""
    budget = combine(NumberBudget(number=number), causes, is_stamped=True)
    about = [bound for bound in causes if bound.number is number]
    largest = {group: max(bound.size_ratio for bound in about if bound.group is group) for group in {b.group for b in about}}
    whole = largest.pop(Group.WHOLE, 0.0)
    assert size(budget) == pytest.approx(max(whole, sum(largest.values())))
    assert sorted(map(repr, budget.bounds)) == sorted(map(repr, about))
    assert [bound.size_ratio for bound in budget.bounds] == sorted((b.size_ratio for b in about), reverse=True)
    counted = largest if whole <= sum(largest.values()) else {Group.WHOLE: whole}
    assert {bound.group: bound.size_ratio for bound in budget.counted} == pytest.approx(counted)


def test_combine_adds_groups_and_takes_the_first_of_equals() -> None:
    budget = throughput(
        cause("first", Group.IDLE, 0.004, -0.004),
        cause("second", Group.IDLE, 0.004, 0.003),
        cause("third", Group.INSIDE, 0.002, -0.001),
    )
    assert budget.bound_ratio == pytest.approx(0.006)
    assert [bound.rule for bound in budget.counted] == ["first", "third"]
    assert budget.estimate is not None
    assert budget.estimate.value_ratio == pytest.approx(-0.005)


@pytest.mark.parametrize(("whole_ratio", "bound_ratio", "counted"), [(0.02, 0.05, ["a", "b"]), (0.06, 0.06, ["record"])])
def test_combine_counts_the_whole_or_its_causes(whole_ratio: float, bound_ratio: float, counted: list[str]) -> None:
    """A bound of the whole number counts if it exceeds the sum of the causes, and is never added to that sum."""
    causes = (cause("a", Group.IDLE, 0.03, -0.03), cause("b", Group.CLOCK, 0.02, -0.02))
    budget = throughput(cause("record", Group.WHOLE, whole_ratio, -whole_ratio), *causes)
    assert budget.bound_ratio == pytest.approx(bound_ratio)
    assert [bound.rule for bound in budget.counted] == counted


def test_severity_does_not_add_the_whole_to_its_causes() -> None:
    """A stall of 4 % that the record shows too counts as 4 %, not as 8 %."""
    stall = cause("idle-stretch", Group.IDLE, 0.04, -0.04)
    assert severity(throughput(stall, cause("record-shift", Group.WHOLE, 0.04, -0.04)), 0.01) is Severity.FLAG
    assert severity(throughput(stall, cause("record-shift", Group.WHOLE, 0.06, -0.06)), 0.01) is Severity.REJECT


@pytest.mark.parametrize(("is_stamped", "bound_ratio"), [(True, 0.07), (False, 0.04)])
def test_combine_joins_unstamped_times_to_the_clock(is_stamped: bool, bound_ratio: float) -> None:
    budget = throughput(cause("a", Group.CLOCK, 0.03), cause("b", Group.TIMES, 0.04), is_stamped=is_stamped)
    assert budget.bound_ratio == pytest.approx(bound_ratio)


def test_combine_has_no_bound_with_an_unbounded_cause() -> None:
    budget = throughput(cause("neighbour", Group.RECORD, None), cause("a", Group.IDLE, 0.002))
    assert budget.bound_ratio is None
    assert budget.unbounded_by == ("neighbour",)
    assert severity(budget, 0.2) is Severity.FLAG


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        ([], Severity.NOTE),
        ([("idle", 0.01, -0.01)], Severity.NOTE),
        ([("idle", 0.0101, -0.0101)], Severity.FLAG),
        ([("idle", 0.006, -0.006), ("clock", 0.006, 0.006)], Severity.FLAG),
        ([("idle", 0.049, -0.049)], Severity.FLAG),
        ([("idle", 0.06, None)], Severity.FLAG),
        ([("idle", 0.06, -0.06)], Severity.REJECT),
        ([("idle", 0.06, -0.06), ("clock", 0.06, 0.06)], Severity.REJECT),
        ([("idle", 0.03, -0.03), ("inside", 0.03, -0.03)], Severity.REJECT),
        ([("idle", 0.03, -0.03), ("inside", 0.03, 0.03)], Severity.FLAG),
        ([("idle", 0.03, -0.03), ("idle", 0.03, -0.03)], Severity.FLAG),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_severity_follows_bound_and_nearer_end(causes: list[tuple[str, float, float | None]], expected: Severity) -> None:
    """At a tolerance of 1 %, a larger bound flags, and a proven change of one sign beyond 5 % rejects."""
    found = [cause(f"r{i}", Group(group), ratio, value) for i, (group, ratio, value) in enumerate(causes)]
    assert severity(throughput(*found), 0.01) is expected


@given(st.lists(made.bounds(), max_size=6))
def test_severity_never_rejects_by_causes_that_only_flag(causes: list[Bound]) -> None:
    """Causes that cannot reject flag at most, alone and together."""
    for number in Number:
        budget = combine(NumberBudget(number=number), map(made.without_rejection, causes), is_stamped=True)
        assert severity(budget, 0.001) is not Severity.REJECT


def test_severity_rejects_despite_a_larger_flag_only_cause() -> None:
    """A larger cause that cannot reject does not hide a smaller one of its group."""
    large = made.without_rejection(cause("unknown-model", Group.CLOCK, 0.2, 0.2))
    assert severity(throughput(large, cause("clock-drift", Group.CLOCK, 0.08, 0.07)), 0.01) is Severity.REJECT


@given(made.grounds, made.policies)
def test_decide_keeps_accepted_causes_in_the_budget(grounds: Grounds, policy: Policy) -> None:
    """Accepted rules stay in the budget; the status is that of the grounds without the causes of accepted rules."""
    decision = decide(grounds, policy)
    assert decision.budget == decide(grounds, replace(policy, accept=frozenset())).budget
    kept = replace(
        grounds,
        causes=tuple(bound for bound in grounds.causes if bound.rule not in policy.accept),
        integrity={rule: found for rule, found in grounds.integrity.items() if rule not in policy.accept},
    )
    compared = {bound.number for bound in grounds.causes} & {Number.RATIO}
    if compared <= {bound.number for bound in kept.causes}:
        assert decision.status is decide(kept, policy).status


@given(made.grounds, made.policies, made.bounds())
def test_decide_never_improves_with_a_further_cause(grounds: Grounds, policy: Policy, added: Bound) -> None:
    worse = replace(grounds, causes=(*grounds.causes, added))
    assert decide(worse, policy).status.badness >= decide(grounds, policy).status.badness


@given(made.grounds, made.policies, st.sampled_from([0.0001, 0.01, 0.1]))
def test_decide_precision_flags_or_leaves_unproven(grounds: Grounds, policy: Policy, precision_ratio: float) -> None:
    """A precision only flags a larger repeatability and leaves a window of unknown repeatability unproven."""
    without = decide(grounds, replace(policy, precision_ratio=None)).status
    decision = decide(grounds, replace(policy, precision_ratio=precision_ratio))
    claimed = {each.repeatability.ratio for each in decision.budget.numbers if each.number in decision.budget.claimed}
    due = [without]
    due += [Status.UNPROVEN] * (None in claimed)
    due += [Status.FLAGGED] * any(ratio is not None and ratio > precision_ratio for ratio in claimed)
    assert decision.status is max(due, key=lambda status: status.badness)


def test_decide_order_is_rejected_flagged_unproven_valid() -> None:
    """Each status wins over those after it, in every combination of two."""
    stages: list[tuple[Status, dict[str, Any]]] = [
        (Status.REJECTED, {"causes": (cause("idle-stretch", Group.IDLE, 0.09, -0.09),)}),
        (Status.FLAGGED, {"integrity": {"setting-changed": Severity.FLAG}}),
        (Status.UNPROVEN, {"missing": {"stale-daemon": "no sample near the window"}}),
        (Status.VALID, {}),
    ]
    for first, second in permutations(stages, 2):
        worst = max(first[0], second[0], key=lambda status: status.badness)
        assert decide(replace(clean(), **first[1], **second[1]), Policy()).status is worst


@pytest.mark.parametrize("claim", Claim)
@pytest.mark.parametrize("number", [each for each in Number if each is not Number.RATIO])
def test_decide_follows_the_numbers_of_the_claim(claim: Claim, number: Number) -> None:
    """A cause counts if the claim names its number; without times only throughput counts."""
    found = replace(cause("idle-stretch", Group.IDLE, 0.02), number=number)
    for has_times in (True, False):
        numbers = CLAIMED[claim] if has_times else (Number.THROUGHPUT,)
        decision = decide(clean(found, has_times=has_times), Policy(claim=claim))
        assert decision.budget.claimed == numbers
        assert decision.status is (Status.FLAGGED if number in numbers else Status.VALID)
        budget = decision.budget.number(number)
        assert budget is not None
        assert budget.bound_ratio == 0.02  # unclaimed numbers have a bound too


def test_times_outside_the_window_leave_throughput_claimed() -> None:
    """A list of times without one in the window does not improve the status of a window that idled."""
    found = cause("idle-stretch", Group.IDLE, 0.09, -0.09)
    decision = decide(replace(clean(found), are_times_outside=True), Policy(claim=Claim.BURST))
    assert decision.status is Status.REJECTED


def test_decide_counts_the_ratio_of_a_comparison() -> None:
    found = replace(cause("clock-between-arms", Group.PAIR, 0.02), number=Number.RATIO)
    decision = decide(clean(found), Policy())
    assert (decision.status, decision.budget.claimed[-1]) == (Status.FLAGGED, Number.RATIO)


@pytest.mark.parametrize("absent", [*Proof])
@pytest.mark.parametrize("state", [ProofState.UNPROVEN, ProofState.NOT_ASKED, None])
def test_decide_requires_every_proof(absent: Proof, state: ProofState | None) -> None:
    """A window without one of the proofs is unproven; the fifth proof is required only with times."""
    rest = tuple(proof for proof in SHOWN if proof.proof is not absent)
    lacking = () if state is None else (ProofShown(proof=absent, state=state, missing=("power_limit_w", "6 entries")),)
    with_times, without = (replace(clean(has_times=asked), proofs=rest + lacking) for asked in (True, False))
    decision = decide(with_times, Policy())
    assert decision.status is Status.UNPROVEN
    assert decision.why == f"{absent}: {'power_limit_w, 6 entries' if lacking else 'not shown'}"
    assert decide(without, Policy()).status is (Status.VALID if absent is Proof.STEADY_TIMES else Status.UNPROVEN)


def test_decide_flags_broken_proof_unless_rules_are_accepted() -> None:
    broken = ProofShown(proof=Proof.CONDITIONS, state=ProofState.BROKEN, broken_by=("throttle-thermal",))
    grounds = replace(clean(), proofs=(*(proof for proof in SHOWN if proof.proof is not Proof.CONDITIONS), broken))
    assert decide(grounds, Policy()).status is Status.FLAGGED
    assert decide(grounds, Policy(accept=frozenset({"throttle-thermal"}))).status is Status.VALID
    nameless = replace(grounds, proofs=(*grounds.proofs[:-1], replace(broken, broken_by=())))
    assert decide(nameless, Policy(accept=frozenset({"throttle-thermal"}))).status is Status.FLAGGED


def test_decide_flags_the_rules_that_break_a_proof() -> None:
    """The rule is the flag's cause, and accepting it does not replace the proof's missing evidence."""
    broken = ProofShown(proof=Proof.CONDITIONS, state=ProofState.BROKEN, missing=("stamps",), broken_by=("power-limited",))
    grounds = replace(clean(), proofs=(*(proof for proof in SHOWN if proof.proof is not Proof.CONDITIONS), broken))
    decision = decide(grounds, Policy())
    assert (decision.status, decision.why) == (Status.FLAGGED, "")
    assert decision.severities["power-limited"] is Severity.FLAG
    accepted = decide(grounds, Policy(accept=frozenset({"power-limited"})))
    assert (accepted.status, accepted.why) == (Status.UNPROVEN, "conditions: stamps")


def test_decide_names_numbers_of_unknown_repeatability() -> None:
    mean = NumberBudget(number=Number.MEAN, value=1e-3, repeatability=Repeatability(None, "capped under two cycles"))
    decision = decide(replace(clean(), numbers=(mean,)), Policy(claim=Claim.FIXED_CLOCK, precision_ratio=0.01))
    assert decision.status is Status.UNPROVEN
    assert decision.why == (
        "mean: repeatability unknown (capped under two cycles); median_at_clock: repeatability unknown (not asked)"
    )


@given(made.grounds, made.policies)
def test_decide_names_a_rule_for_every_flag_and_rejection(grounds: Grounds, policy: Policy) -> None:
    """The worst severity among rules that are not accepted agrees with the status."""
    bare = replace(grounds, integrity={}, proofs=SHOWN, missing={})
    decision = decide(bare, replace(policy, precision_ratio=None))
    worst = max(
        (expected for rule, expected in decision.severities.items() if rule not in policy.accept),
        key=WEIGHT.index,
        default=Severity.NOTE,
    )
    due = {Status.REJECTED: Severity.REJECT, Status.FLAGGED: Severity.FLAG, Status.VALID: Severity.NOTE}
    assert worst is due[decision.status]
    assert decision.severities.keys() == {bound.rule for bound in grounds.causes}


def test_decide_shows_the_severity_of_an_accepted_rule() -> None:
    """An accepted rule shows the severity without acceptance, and does not raise that of another rule."""
    large, small = cause("outliers", Group.INSIDE, 0.06, -0.06), cause("cold-start", Group.IDLE, 0.002)
    decision = decide(clean(large, small), Policy(accept=frozenset({"outliers"})))
    assert decision.status is Status.VALID
    assert decision.severities == {"outliers": Severity.REJECT, "cold-start": Severity.NOTE}
