"""What the judge says of one window on one GPU, and its form as plain data.

Imports nothing heavy: the measured process reads verdicts too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from annotate import __version__
from annotate.errors import InvalidValueError

SCHEMA = 1
_SEVERITIES = ("reject", "flag", "note")  # worst first; annotate.rule, which needs numpy, is not imported for them


class Status(StrEnum):
    """The four things a verdict can say, best first."""

    VALID = "valid"
    UNPROVEN = "unproven"
    FLAGGED = "flagged"
    REJECTED = "rejected"

    @property
    def badness(self) -> int:
        return list(Status).index(self)


class Answered(StrEnum):
    """What became of one rule."""

    FOUND = "found"
    CLEAR = "clear"
    UNOBSERVED = "unobserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule answered.  There is one for every rule, always."""

    rule: str
    answered: Answered
    severity: str | None = None  # of a hazard found: note, flag or reject
    says: str = ""  # the sentence, or why it was unobserved
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)  # JSON scalars
    effect_ratio: float | None = None
    span_ns: tuple[int, int] | None = None
    basis: str = "telemetry"
    required: bool = False
    accepted: bool = False  # the policy accepts this hazard; it stays in the verdict
    failure: str | None = None  # of an unobserved rule that failed: the class of the exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judge's answer: a status and the finding of every rule."""

    status: Status
    findings: tuple[Finding, ...]
    claim: str
    label: str | None = None
    device_uuid: str | None = None
    device_name: str | None = None
    begin_ns: int = 0
    end_ns: int = 0
    simulated: bool = False
    policy: Mapping[str, Any] = field(default_factory=dict)  # as Policy.to_dict gives it
    why: str = ""  # of an unproven verdict: the missing evidence, in one sentence
    judge_version: str = __version__

    @property
    def hazards(self) -> tuple[Finding, ...]:
        """What was found, worst first, in the rules' order within one severity."""
        found = [finding for finding in self.findings if finding.answered is Answered.FOUND]
        return tuple(sorted(found, key=lambda finding: (finding.accepted, _SEVERITIES.index(finding.severity or "note"))))

    @property
    def unobserved(self) -> tuple[Finding, ...]:
        """The rules that could not tell."""
        return tuple(finding for finding in self.findings if finding.answered is Answered.UNOBSERVED)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The rules that failed on this evidence or under these limits: each is unobserved too."""
        return tuple(finding for finding in self.findings if finding.failure is not None)

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def __str__(self) -> str:
        from annotate.output.report import text

        return text(self)

    def finding(self, rule: str) -> Finding:
        """Raises KeyError for a rule this judge does not have."""
        for finding in self.findings:
            if finding.rule == rule:
                return finding
        raise KeyError(rule)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the schema is ``annotate/verdict.schema.json``."""
        return {
            "schema": SCHEMA,
            "status": self.status.value,
            "label": self.label,
            "claim": self.claim,
            "device": {"uuid": self.device_uuid, "name": self.device_name},
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "simulated": self.simulated,
            "why": self.why,
            "policy": dict(self.policy),
            "judge_version": self.judge_version,
            "findings": [_finding_to_dict(finding) for finding in self.findings],
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Verdict:
        """Raises InvalidValueError if this is not a verdict, or one of a newer schema."""
        try:
            if data["schema"] > SCHEMA:
                raise InvalidValueError(
                    f"verdict schema: expected at most {SCHEMA}, found {data['schema']}; use a newer gpuwatch"
                )
            return Verdict(
                status=Status(data["status"]),
                findings=tuple(_finding_from_dict(finding) for finding in data["findings"]),
                claim=data["claim"],
                label=data["label"],
                device_uuid=data["device"]["uuid"],
                device_name=data["device"]["name"],
                begin_ns=data["begin_ns"],
                end_ns=data["end_ns"],
                simulated=data["simulated"],
                policy=dict(data["policy"]),
                why=data["why"],
                judge_version=data["judge_version"],
            )
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidValueError(f"not a verdict: {type(error).__name__} {error}") from error


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that decides for a window over several GPUs; the first among equals.  Raises ValueError if empty."""
    return max(verdicts, key=lambda verdict: verdict.status.badness)


def _finding_to_dict(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "answered": finding.answered.value,
        "severity": finding.severity,
        "says": finding.says,
        "remedy": finding.remedy,
        "facts": dict(finding.facts),
        "effect_ratio": finding.effect_ratio,
        "span_ns": list(finding.span_ns) if finding.span_ns else None,
        "basis": finding.basis,
        "required": finding.required,
        "accepted": finding.accepted,
        "failure": finding.failure,
    }


def _finding_from_dict(data: Mapping[str, Any]) -> Finding:
    span = data["span_ns"]
    if data["severity"] not in (None, *_SEVERITIES):
        raise ValueError(f"severity {data['severity']!r}")
    return Finding(
        rule=data["rule"],
        answered=Answered(data["answered"]),
        severity=data["severity"],
        says=data["says"],
        remedy=data["remedy"],
        facts=dict(data["facts"]),
        effect_ratio=data["effect_ratio"],
        span_ns=(span[0], span[1]) if span else None,
        basis=data["basis"],
        required=data["required"],
        accepted=data["accepted"],
        failure=data.get("failure"),  # older verdicts have none
    )
