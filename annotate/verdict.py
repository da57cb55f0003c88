"""The verdict on one window on one GPU, and its form as plain data.

Imports nothing heavy: the measured process reads verdicts too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import msgspec

from annotate import __version__
from annotate.budget import Budget
from annotate.budget_data import NOT_STATED, ClaimFacts, budget_from_data, budget_to_data
from annotate.errors import InvalidValueError

SCHEMA = 2
_SINCE_2 = ("claim_facts", "labels", "budget", "proofs")
_SINCE_2_OF_FINDINGS = ("class", "cause")
_LABEL = "label"
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
    """The three things that can become of one rule."""

    FOUND = "found"
    CLEAR = "clear"
    UNOBSERVED = "unobserved"


@dataclass(frozen=True, slots=True)
class OverriddenLimit:
    """A limit under which a rule was asked, and the one it has by itself."""

    value: float
    default: float


@dataclass(frozen=True, slots=True)
class FindingCause:
    """The cause of a hazard, how it is known, and how much of the hazard it overlaps in time."""

    kind: str
    by: str
    overlap_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer of one rule.  There is one for every rule, always."""

    rule: str
    kind: str | None = None  # bias, integrity or label, as ``class`` in plain data; older verdicts have none
    answered: Answered
    severity: str | None = None  # of a hazard found: note, flag or reject; of a bias what the judge made of its bounds
    says: str = ""  # the sentence, or why it was unobserved
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)  # JSON scalars
    effect_ratio: float | None = None
    span_ns: tuple[int, int] | None = None
    cause: FindingCause | None = None  # of a hazard whose cause is known
    basis: str = "telemetry"
    required: bool = False
    accepted: bool = False  # the policy accepts this hazard; it stays in the verdict
    failure: str | None = None  # of an unobserved rule that failed: the class of the exception; older verdicts have none
    limits_overridden: Mapping[str, OverriddenLimit] = field(default_factory=dict)  # by name; older verdicts have none

    def __post_init__(self) -> None:
        if self.severity not in (None, *_SEVERITIES):
            raise ValueError(f"expected a severity of {', '.join(_SEVERITIES)} or none, found {self.severity!r}")

    @property
    def is_label(self) -> bool:
        """Return whether it was found and stands in the label line, beside the number."""
        return self.answered is Answered.FOUND and self.kind == _LABEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judge's answer: a status and the finding of every rule."""

    status: Status
    label: str | None = None
    claim: str
    device_uuid: str | None = None
    device_name: str | None = None
    begin_ns: int = 0
    end_ns: int = 0
    simulated: bool = False
    why: str = ""  # of an unproven verdict: the missing evidence, in one sentence
    policy: Mapping[str, Any] = field(default_factory=dict)  # as Policy.to_dict gives it
    judge_version: str = __version__
    findings: tuple[Finding, ...]
    claim_facts: ClaimFacts = NOT_STATED  # the stated parts of the claim
    labels: tuple[str, ...] = ()  # what must be quoted beside the number, in the rules' order
    budget: Budget | None = None  # None of verdicts before there were budgets

    @property
    def hazards(self) -> tuple[Finding, ...]:
        """Return what was found, worst first, in the rules' order within one severity."""
        found = [finding for finding in self.findings if finding.answered is Answered.FOUND]
        return tuple(sorted(found, key=lambda finding: (finding.accepted, _SEVERITIES.index(finding.severity or "note"))))

    @property
    def causes(self) -> tuple[Finding, ...]:
        """Return the hazards that are no labels, in the same order."""
        return tuple(finding for finding in self.hazards if not finding.is_label)

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
        """Return plain data for JSON; the schema is ``annotate/verdict.schema.json``."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        data |= {"budget": None, "proofs": []} if self.budget is None else budget_to_data(self.budget)
        data |= {"labels": list(self.labels), "findings": [_written(each) for each in data["findings"]]}
        device = {"uuid": data.pop("device_uuid"), "name": data.pop("device_name")}
        head = {name: data.pop(name) for name in ("status", "label", "claim", "claim_facts", "labels")}
        return {"schema": SCHEMA, **head, "device": device, **data}

    def as_schema_1(self) -> dict[str, Any]:
        """Return plain data as readers know it that came before budgets."""
        data = {name: value for name, value in self.to_dict().items() if name not in _SINCE_2}
        data["findings"] = [
            {name: value for name, value in each.items() if name not in _SINCE_2_OF_FINDINGS} for each in data["findings"]
        ]
        return {**data, "schema": 1}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Verdict:
        """Read what ``to_dict`` gave.  Raises InvalidValueError if this is not a verdict, or one of a newer schema."""
        try:
            if data["schema"] > SCHEMA:
                raise InvalidValueError(
                    f"verdict schema: expected at most {SCHEMA}, found {data['schema']}; use a newer gpuwatch"
                )
            device = data["device"]
            rest = {**data, "device_uuid": device["uuid"], "device_name": device["name"], "budget": None}
            rest["findings"] = [{**each, "kind": each.get("class")} for each in data["findings"]]
            return replace(msgspec.convert(rest, Verdict), budget=budget_from_data(data))
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidValueError(f"not a verdict: {type(error).__name__} {error}") from error


def _written(finding: dict[str, Any]) -> dict[str, Any]:
    """A finding as plain data: ``class``, which Python keeps for itself, in place of ``kind``, and a span as a list."""
    head = {"rule": finding.pop("rule"), "class": finding.pop("kind")}
    return {**head, **finding, "span_ns": finding["span_ns"] and list(finding["span_ns"])}


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that decides for a window over several GPUs; the first among equals.  Raises ValueError if empty."""
    return max(verdicts, key=lambda verdict: verdict.status.badness)
