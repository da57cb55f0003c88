"""The judge: every rule is asked, and the answers make a status."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from annotate.claims import REQUIRED, Claim
from annotate.evidence import Evidence, Fact
from annotate.policy import Policy
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules import RULES
from annotate.times.durations import usable
from annotate.verdict import Answered, Finding, Status, Verdict

_TEXT_LENGTH = 1000  # of any text in a finding: some repeat what the measured process declared
_INTEGERS, _RATIOS = 1 << 63, 1e300  # what encoders of verdicts hold


def judge(evidence: Evidence, policy: Policy | None = None, *, rules: Sequence[Rule] = RULES) -> Verdict:
    """The verdict on one window on one GPU; the same evidence and policy give the same verdict anywhere."""
    policy = policy or Policy()
    evidence = _usable(evidence)
    required = {name for group in REQUIRED[policy.claim] for name in group}
    witnessed, declared = _answers(rules, evidence, policy)
    missing = _missing(witnessed, policy.claim)
    # Facts declared by the measured process can only worsen an answer: it may be rewarded for a good verdict.
    answers = {name: _worse(declared[name], witnessed[name], required=name in required) for name in witnessed}
    missing |= _missing(answers, policy.claim)
    findings = tuple(_finding(rule, answers[rule.name], policy, required=rule.name in required) for rule in rules)
    return Verdict(
        status=_status(findings, proven=not missing),
        findings=findings,
        claim=policy.claim.value,
        label=evidence.window.label,
        device_uuid=evidence.device.uuid if evidence.device else None,
        device_name=evidence.device.name if evidence.device else None,
        begin_ns=evidence.window.begin_ns,
        end_ns=evidence.window.end_ns,
        simulated=bool(evidence.device and evidence.device.simulated),
        policy=policy.to_dict(),
        why=(evidence.absence or "; ".join(f"{name}: {reason}" for name, reason in missing.items())) if missing else "",
    )


def _usable(evidence: Evidence) -> Evidence:
    """The evidence, and what it is compared with, without times that are none."""
    baseline = _usable(evidence.baseline) if evidence.baseline else None
    return replace(evidence, timings=usable(evidence.timings, evidence.window), baseline=baseline)


def _answers(rules: Sequence[Rule], evidence: Evidence, policy: Policy) -> tuple[dict[str, Answer], dict[str, Answer]]:
    """Return what each rule says without what the measured process declared and timed, and with it.

    A rule that looked at nothing declared says the same without: it is asked once.
    """
    alone = replace(evidence, declared={}, timings=None)
    heard = _Heard(evidence.declared)
    whole = replace(evidence, declared=heard)
    witnessed: dict[str, Answer] = {}
    declared: dict[str, Answer] = {}
    for rule in rules:
        limits = policy.limits.get(rule.name)
        heard.asked = False
        answer = _answer(rule, whole, policy.claim, limits)
        declared[rule.name] = answer
        same = evidence.timings is None and not (heard.asked and evidence.declared)
        witnessed[rule.name] = answer if same else _answer(rule, alone, policy.claim, limits)
    return witnessed, declared


def _answer(rule: Rule, evidence: Evidence, claim: Claim, limits: Mapping[str, float] | None) -> Answer:
    """The rule's answer; Unobserved where the rule fails, so that no limit and no evidence costs the other rules theirs."""
    try:
        answer = rule.ask(evidence, claim, limits)
        if isinstance(answer, Found):
            rule.says.format(**answer.facts), rule.remedy.format(**answer.facts)
    except Exception as error:  # noqa: BLE001 - limits and evidence are others' and may be anything; the caller logs
        failure = type(error).__name__
        under = ", ".join(f"{name} = {value:.6g}" for name, value in (limits or {}).items())
        with_limits = f" with the limit{'s' if len(limits or {}) > 1 else ''} {under}" if under else ""
        return Unobserved(f"the rule {rule.name} failed ({failure}){with_limits}", failure)
    return answer


class _Heard(Mapping[str, Fact]):
    """The declared facts, and whether a rule looked at any of them."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._facts = facts
        self.asked = False

    def __getitem__(self, name: str) -> Fact:
        self.asked = True
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        self.asked = True
        return iter(self._facts)

    def __len__(self) -> int:
        self.asked = True
        return len(self._facts)


def _worse(declared: Answer, witnessed: Answer, *, required: bool) -> Answer:
    """The answer that can do more to the status; of equals the declared one, which knows more."""

    def badness(answer: Answer) -> int:
        match answer:
            case Found(severity=Severity.REJECT):
                return 3
            case Found(severity=Severity.FLAG):
                return 2
            case Unobserved():
                return 1 if required else 0
            case _:
                return 0

    return max(declared, witnessed, key=badness)


def _missing(witnessed: Mapping[str, Answer], claim: Claim) -> dict[str, str]:
    """Why the required rules could not tell, where no other of their group could either."""
    return {
        name: _short(answer.reason) if isinstance(answer := witnessed.get(name), Unobserved) else "no such rule"
        for group in REQUIRED[claim]
        if all(isinstance(witnessed.get(name), Unobserved | None) for name in group)
        for name in group
    }


def _finding(rule: Rule, answer: Answer, policy: Policy, *, required: bool) -> Finding:
    finding = Finding(
        rule=rule.name,
        answered=Answered.UNOBSERVED,
        basis=rule.basis.value,
        required=required,
        limits_overridden=rule.overridden(policy.limits.get(rule.name, {})),
    )
    match answer:
        case Found():
            shown = {name: _shortened(value) for name, value in answer.facts.items()}
            return replace(
                finding,
                answered=Answered.FOUND,
                severity=answer.severity.value,
                says=rule.says.format(**shown),
                remedy=rule.remedy.format(**shown),
                facts=_plain(answer.facts),
                effect_ratio=_finite(answer.effect_ratio),
                span_ns=_instants(answer.span_ns),
                accepted=rule.name in policy.accept,
            )
        case Clear():
            return replace(finding, answered=Answered.CLEAR, facts=_plain(answer.facts))
        case Unobserved():
            return replace(finding, says=_short(answer.reason), failure=answer.failure)


def _plain(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Facts as plain data: numpy's scalars pass for Python's in every check of types and fail only in an encoder.

    A number that JSON or 64 bits cannot hold becomes its text.
    """
    return {name: _encodable(value.item() if isinstance(value, np.generic) else value) for name, value in facts.items()}


def _encodable(value: Fact) -> Fact:
    holds = not isinstance(value, int | float) or (abs(value) < _INTEGERS if isinstance(value, int) else isfinite(value))
    return _shortened(value) if holds else f"{value}"


def _shortened(value: Fact) -> Fact:
    return _short(value) if isinstance(value, str) else value


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_LENGTH else text[: _TEXT_LENGTH - 1] + "…"


def _finite(ratio: float | None) -> float | None:
    return float(ratio) if ratio is not None and abs(ratio) < _RATIOS else None


def _instants(span_ns: tuple[int, int] | None) -> tuple[int, int] | None:
    """A span in plain integers; None for one that 64 bits cannot hold."""
    if span_ns is None or not all(abs(at_ns) < _INTEGERS for at_ns in span_ns):
        return None
    return int(span_ns[0]), int(span_ns[1])


def _status(findings: tuple[Finding, ...], *, proven: bool) -> Status:
    severities = {finding.severity for finding in findings if finding.severity and not finding.accepted}
    if Severity.REJECT in severities:
        return Status.REJECTED
    if Severity.FLAG in severities:
        return Status.FLAGGED
    return Status.VALID if proven else Status.UNPROVEN
