"""The judge, which evaluates every rule and proof and derives a budget and a status from the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite

import numpy as np

from annotate.answer import Answer, Clear, Found, Severity, Unobserved
from annotate.budget import ITSELF, BoundScope, Number
from annotate.budget_data import ClaimFacts
from annotate.claims import REQUIRED
from annotate.combine import CLAIMED, Grounds, StatusDecision, decide
from annotate.derived.claimed_work import is_untrusted
from annotate.derived.hung_page import without_hung_page
from annotate.derived.measured_numbers import MeasuredNumbers
from annotate.derived.record_shift import compared
from annotate.derived.whole_program import describe_part, working_part
from annotate.evidence import Evidence, Fact
from annotate.inquiry import Inquired, inquire
from annotate.rule import Rule, RuleKind
from annotate.rules import RULES
from annotate.times.durations import usable
from annotate.user_policy import Policy
from annotate.verdict import Answered, Finding, FindingCause, Verdict

_TEXT_LENGTH = 1000  # longest fact, reason or cause of a finding: some repeat declared texts
_INTEGERS, _RATIOS = 1 << 63, 1e300  # largest values that encoders of verdicts accept
_WEIGHT = (Severity.NOTE, Severity.FLAG, Severity.REJECT)


def judge(evidence: Evidence, policy: Policy | None = None, *, rules: Sequence[Rule] = RULES) -> Verdict:
    """Return the verdict on one window on one GPU; the same evidence and policy give the same verdict anywhere.

    Args:
        evidence: Evidence of the window, as ``unpack`` returns it.
        policy: Policy to judge by; by default a sustained claim with a tolerance of 1 %.
        rules: Rules to evaluate; by default all.

    Returns:
        The verdict, with one finding per rule.

    Raises nothing for evidence that ``unpack`` returned: a rule that fails is an unobserved finding.

    Example:
        >>> from annotate.judge import judge
        >>> from annotate.capsule.unpack import unpack
        >>> evidence = unpack(Path("window.capsule").read_bytes())[0]
        >>> judge(evidence, gpuwatch.Policy(claim=gpuwatch.Claim.BURST)).claim
        'burst'
    """
    policy = policy or Policy()
    whole = without_hung_page(_usable(evidence))
    if is_untrusted(whole):
        whole = replace(whole, other_work=None, record=None)  # unwitnessed work would explain busy time
    evidence = working_part(whole, policy.claim)
    inquired = inquire(rules, evidence, policy)
    decision = decide(_grounds(rules, evidence, inquired, policy), policy)
    findings = tuple(_finding(rule, inquired.answers[rule.name], decision, policy) for rule in rules)
    return Verdict(
        status=decision.status,
        findings=findings,
        claim=policy.claim.value,
        claim_facts=ClaimFacts.of(evidence.declared),
        label=evidence.window.label,
        device_uuid=evidence.device.uuid if evidence.device else None,
        device_name=evidence.device.name if evidence.device else None,
        begin_ns=whole.window.begin_ns,
        end_ns=whole.window.end_ns,
        simulated=bool(evidence.device and evidence.device.simulated),
        policy=policy.to_dict(),
        labels=(
            *_part_label(whole, evidence),
            *_reference_label(inquired),
            *(finding.says for finding in findings if finding.is_label),
        ),
        budget=decision.budget,
        why=(evidence.absence or _short(decision.why)) if decision.why else "",
    )


def _part_label(whole: Evidence, part: Evidence) -> tuple[str, ...]:
    words = describe_part(whole, part)
    return () if words is None else (words,)


def _reference_label(inquired: Inquired) -> tuple[str, ...]:
    """Return the label that the number is not at the policy's reference clock; none without times."""
    try:
        words = inquired.case.off_reference if inquired.case.has_times else ""
    except (ArithmeticError, ValueError):  # unusable times, which rules report
        return ()
    return (_short(words),) if words else ()


def _usable(evidence: Evidence) -> Evidence:
    baseline = _usable(evidence.baseline) if evidence.baseline else None
    return replace(evidence, timings=usable(evidence.timings, evidence.window), baseline=baseline)


def _grounds(rules: Sequence[Rule], evidence: Evidence, inquired: Inquired, policy: Policy) -> Grounds:
    case = inquired.case
    numbers = _measured(inquired).on_other_cards(policy.card_spread_ratio)
    return Grounds(
        numbers=numbers.budgets,
        causes=inquired.causes,
        integrity=_integrity(inquired.answers),
        proofs=inquired.proofs,
        missing=_missing(rules, inquired.answers),
        is_stamped=case.is_stamped,
        has_times=evidence.timings is not None,
        are_times_outside=evidence.timings is not None and all(each.value is None for each in numbers.budgets),
        leading=numbers.leading,
        scope=_scope(evidence, numbers, policy),
    )


def _scope(evidence: Evidence, numbers: MeasuredNumbers, policy: Policy) -> BoundScope:
    """Return the reference for conditions of the whole window: the record if it has every claimed number, else the window."""
    shifts = compared(numbers.budgets, evidence.record)
    claimed = CLAIMED[policy.claim] if evidence.timings is not None else (Number.THROUGHPUT,)
    return BoundScope("record", len(evidence.record.windows)) if evidence.record and shifts.keys() >= set(claimed) else ITSELF


def _measured(inquired: Inquired) -> MeasuredNumbers:
    """Return the measured numbers; an empty set if the times are unusable, which rules report."""
    try:
        return inquired.case.numbers
    except (ArithmeticError, ValueError):
        return MeasuredNumbers((), None)


def _integrity(answers: Mapping[str, Answer]) -> Mapping[str, Severity]:
    found = {name: answer.severity for name, answer in answers.items() if isinstance(answer, Found)}
    return {name: severity for name, severity in found.items() if severity is not Severity.NOTE}


def _missing(rules: Sequence[Rule], answers: Mapping[str, Answer]) -> Mapping[str, str]:
    out = {name: "no such rule" for name in REQUIRED if name not in answers}
    for rule in rules:
        answer = answers[rule.name]
        if isinstance(answer, Unobserved) and (rule.name in REQUIRED or (answer.failure and rule.kind is not RuleKind.LABEL)):
            out[rule.name] = _short(answer.reason)
    return out


def _finding(rule: Rule, answer: Answer, decision: StatusDecision, policy: Policy) -> Finding:
    made = decision.severities.get(rule.name, Severity.NOTE)
    finding = partial(
        Finding,
        rule=rule.name,
        kind=_kind(rule, answer, made).value,
        basis=rule.basis.value,
        required=rule.name in REQUIRED,
        limits_overridden=rule.overridden(policy.limits[rule.name]) if rule.name in policy.limits else {},
    )
    match answer:
        case Found():
            shown = {name: _shortened(value) for name, value in answer.facts.items()}
            return finding(
                answered=Answered.FOUND,
                severity=max(answer.severity, made, key=_WEIGHT.index).value,
                says=rule.says.format(**shown),
                remedy=rule.remedy.format(**shown),
                facts=_plain(answer.facts),
                effect_ratio=_finite(answer.effect_ratio if answer.effect_ratio is not None else _effect_ratio(answer)),
                span_ns=_instants(answer.span_ns),
                cause=_cause(answer),
                accepted=rule.name in policy.accept,
            )
        case Clear():
            return finding(answered=Answered.CLEAR, facts=_plain(answer.facts))
        case Unobserved():
            return finding(answered=Answered.UNOBSERVED, says=_short(answer.reason), failure=answer.failure)


def _kind(rule: Rule, answer: Answer, made: Severity) -> RuleKind:
    if made is not Severity.NOTE:
        # A label that breaks a proof, as the power cap does under a fixed clock, is a cause of the status.
        return RuleKind.INTEGRITY if rule.kind is RuleKind.LABEL else rule.kind
    is_label = isinstance(answer, Found) and answer.severity is Severity.NOTE and not answer.bounds
    return RuleKind.LABEL if is_label else rule.kind


def _cause(found: Found) -> FindingCause | None:
    cause, by, overlap = (found.facts.get(name) for name in ("cause", "cause_by", "cause_overlap_ratio"))
    if not isinstance(cause, str) or not isinstance(by, str):
        return None
    return FindingCause(_short(cause), _short(by), _finite(overlap) if isinstance(overlap, float) else None)


def _effect_ratio(found: Found) -> float | None:
    """Return the change of the measured time by a rule's bounds: the mean's estimate, else minus the throughput's, or None."""
    estimates = {bound.number: bound.estimate.value_ratio for bound in found.bounds if bound.estimate}
    rate_ratio = estimates.get(Number.THROUGHPUT)
    return estimates.get(Number.MEAN, -rate_ratio if rate_ratio is not None else None)


def _plain(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return facts as plain data: numpy scalars and text enumerations become Python values.

    A number that JSON or 64 bits cannot hold becomes text.
    """
    return {name: _encodable(value.item() if isinstance(value, np.generic) else value) for name, value in facts.items()}


def _encodable(value: Fact) -> Fact:
    holds = isfinite(value) if isinstance(value, float) else not isinstance(value, int) or abs(value) < _INTEGERS
    return _shortened(value) if holds else f"{value}"


def _shortened(value: Fact) -> Fact:
    return _short(str(value)) if isinstance(value, str) else value


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_LENGTH else text[: _TEXT_LENGTH - 1] + "…"


def _finite(ratio: float | None) -> float | None:
    return float(ratio) if ratio is not None and abs(ratio) < _RATIOS else None


def _instants(span_ns: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return a span as plain integers, or None for a span that 64 bits cannot hold."""
    if span_ns is None or not all(abs(at_ns) < _INTEGERS for at_ns in span_ns):
        return None
    return int(span_ns[0]), int(span_ns[1])
