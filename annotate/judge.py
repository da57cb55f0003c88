"""The judge: every rule is asked, and the answers make a status."""

from __future__ import annotations

from annotate.claims import REQUIRED
from annotate.evidence import Evidence
from annotate.policy import Policy
from annotate.rule import Clear, Found, Rule, Severity
from annotate.rules import RULES
from annotate.verdict import Answered, Finding, Status, Verdict


def judge(evidence: Evidence, policy: Policy | None = None) -> Verdict:
    """The verdict on one window on one GPU; the same evidence and policy give the same verdict anywhere."""
    policy = policy or Policy()
    required = {name for group in REQUIRED[policy.claim] for name in group}
    findings = tuple(_finding(rule, evidence, policy, required=rule.name in required) for rule in RULES)
    missing = _missing(findings, policy)
    return Verdict(
        status=_status(findings, missing),
        findings=findings,
        claim=policy.claim.value,
        label=evidence.window.label,
        device_uuid=evidence.device.uuid if evidence.device else None,
        device_name=evidence.device.name if evidence.device else None,
        begin_ns=evidence.window.begin_ns,
        end_ns=evidence.window.end_ns,
        simulated=bool(evidence.device and evidence.device.simulated),
        policy=policy.to_dict(),
        why=(evidence.absence or "; ".join(f"{f.rule}: {f.says}" for f in missing)) if missing else "",
    )


def _finding(rule: Rule, evidence: Evidence, policy: Policy, *, required: bool) -> Finding:
    answer = rule.ask(evidence, policy.claim, policy.limits.get(rule.name))
    common = {"rule": rule.name, "basis": rule.basis.value}
    match answer:
        case Found():
            return Finding(
                **common,
                answered=Answered.FOUND,
                severity=answer.severity.value,
                says=rule.says.format(**answer.facts),
                remedy=rule.remedy.format(**answer.facts),
                facts=dict(answer.facts),
                effect_ratio=answer.effect_ratio,
                span_ns=answer.span_ns,
                required=required,
                accepted=rule.name in policy.accept,
            )
        case Clear():
            return Finding(**common, answered=Answered.CLEAR, facts=dict(answer.facts), required=required)
        case _:
            return Finding(**common, answered=Answered.UNOBSERVED, says=answer.reason, required=required)


def _missing(findings: tuple[Finding, ...], policy: Policy) -> tuple[Finding, ...]:
    """The required rules that could not tell, where no other of their group could either."""
    blind = {finding.rule: finding for finding in findings if finding.answered is Answered.UNOBSERVED}
    groups = (group for group in REQUIRED[policy.claim] if all(name in blind for name in group))
    return tuple(blind[name] for group in groups for name in group)


def _status(findings: tuple[Finding, ...], missing: tuple[Finding, ...]) -> Status:
    severities = {finding.severity for finding in findings if finding.severity and not finding.accepted}
    if Severity.REJECT in severities:
        return Status.REJECTED
    if Severity.FLAG in severities:
        return Status.FLAGGED
    return Status.UNPROVEN if missing else Status.VALID
