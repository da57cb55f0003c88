"""The verdict on one window on one GPU, and its form as plain data.

The module avoids heavy imports because the measured process reads verdicts too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from annotate import __version__
from annotate.budget import Budget
from annotate.budget_data import NOT_STATED, ClaimFacts, budget_from_data, budget_to_data
from annotate.errors import InvalidValueError
from annotate.finding import SEVERITIES, Answered, Finding, FindingCause, OverriddenLimit
from annotate.status import Status

SCHEMA = 2
_SINCE_2 = ("claim_facts", "labels", "budget", "proofs")
_SINCE_2_OF_FINDINGS = ("class", "cause")

__all__ = ["SCHEMA", "Answered", "Finding", "FindingCause", "OverriddenLimit", "Status", "Verdict", "worst"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judge's result for one window on one GPU: a status and the finding of every rule.

    ``print`` shows a verdict to people; ``to_dict()`` is for programs.  Only the judge and ``from_dict`` make verdicts.

    Attributes:
        status: Status of the window.
        label: Name of the window.
        claim: Claim that was judged: sustained, burst or fixed-clock.
        claim_facts: Parts of the claim stated besides its name.
        device_uuid: UUID of the GPU; None if no GPU was watched.
        device_name: Name of the GPU's model; None if no GPU was watched.
        begin_ns: Start of the window on ``time.monotonic_ns``, in nanoseconds.
        end_ns: End of the window on the same clock, in nanoseconds.
        simulated: True if no real GPU was measured.
        why: Missing evidence or proofs of an unproven, flagged or rejected verdict, separated by semicolons; else empty.
        policy: Policy of the window, as ``Policy.to_dict`` gives it.
        judge_version: Version of the judge.
        findings: One finding per rule.
        labels: Words that must be quoted with the number.
        budget: Numbers of the window, each with its bounds, estimate and repeatability, and the five proofs; None in schema 1.

    Raises nothing when an attribute is read.

    Example:
        >>> verdict = judge(unpack(Path("window.capsule").read_bytes())[0])
        >>> verdict.status.value, verdict.device_name
        ('rejected', 'NVIDIA H200')
        >>> "wrong-stream" in [hazard.rule for hazard in verdict.hazards]
        True
    """

    status: Status
    label: str | None = None
    claim: str
    device_uuid: str | None = None
    device_name: str | None = None
    begin_ns: int = 0
    end_ns: int = 0
    simulated: bool = False
    why: str = ""
    policy: Mapping[str, Any] = field(default_factory=dict)
    judge_version: str = __version__
    findings: tuple[Finding, ...]
    claim_facts: ClaimFacts = NOT_STATED
    labels: tuple[str, ...] = ()  # the judged part of a whole program first, then in the rules' order
    budget: Budget | None = None

    @property
    def hazards(self) -> tuple[Finding, ...]:
        """Return the findings of hazards: worst first, the largest bound first in one severity, and accepted ones last."""
        found = [finding for finding in self.findings if finding.answered is Answered.FOUND]
        return tuple(sorted(found, key=self._rank))

    def _rank(self, finding: Finding) -> tuple[bool, int, float]:
        bound = self.budget.largest_of(finding.rule) if self.budget is not None else None
        return finding.accepted, SEVERITIES.index(finding.severity or "note"), -bound.size_ratio if bound else 0.0

    @property
    def causes(self) -> tuple[Finding, ...]:
        """Return the hazards that are not labels, in the order of ``hazards``."""
        return tuple(finding for finding in self.hazards if not finding.is_label)

    @property
    def unobserved(self) -> tuple[Finding, ...]:
        """Return the findings of rules whose evidence is missing, and of failed rules, in the rules' order."""
        return tuple(finding for finding in self.findings if finding.answered is Answered.UNOBSERVED)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Return the findings of rules that failed on this evidence or under these limits; each is unobserved too."""
        return tuple(finding for finding in self.findings if finding.failure is not None)

    @property
    def length_s(self) -> float:
        """Return the length of the window, in seconds."""
        return (self.end_ns - self.begin_ns) / 1e9

    def __str__(self) -> str:
        from annotate.output.report import text

        return text(self)

    def finding(self, rule: str) -> Finding:
        """Return the finding of one rule.

        Args:
            rule: Name of the rule.

        Raises KeyError: when the verdict has no finding of this rule.

        Example:
            >>> verdict.finding("stale-daemon").answered.value
            'clear'
        """
        for finding in self.findings:
            if finding.rule == rule:
                return finding
        raise KeyError(rule)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the schema is ``annotate/verdict.schema.json``.

        Raises nothing.

        Example:
            >>> data = verdict.to_dict()
            >>> data["schema"], data["status"]
            (2, 'rejected')
        """
        data: dict[str, Any] = msgspec.to_builtins(self)
        data |= {"budget": None, "proofs": []} if self.budget is None else budget_to_data(self.budget)
        data |= {"labels": list(self.labels), "findings": [_written(each) for each in data["findings"]]}
        device = {"uuid": data.pop("device_uuid"), "name": data.pop("device_name")}
        head = {name: data.pop(name) for name in ("status", "label", "claim", "claim_facts", "labels")}
        return {"schema": SCHEMA, **head, "device": device, **data}

    def as_schema_1(self) -> dict[str, Any]:
        """Return plain data of schema 1, for readers that cannot read schema 2.

        Raises nothing.

        Example:
            >>> verdict.as_schema_1()["schema"]
            1
        """
        data = {name: value for name, value in self.to_dict().items() if name not in _SINCE_2}
        data["findings"] = [
            {name: value for name, value in each.items() if name not in _SINCE_2_OF_FINDINGS} for each in data["findings"]
        ]
        return {**data, "schema": 1}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Verdict:
        """Read a verdict from the data that ``to_dict`` returned, in this version or an earlier one.

        Args:
            data: Plain data of schema 1 or 2.

        Returns:
            The verdict.

        Raises InvalidValueError: when the data is not a verdict, or has a newer schema.

        Example:
            >>> gpuwatch.Verdict.from_dict(verdict.to_dict()) == verdict
            True
        """
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
            found = f"{type(error).__name__}: {error}"
            raise InvalidValueError(f"expected a verdict, found invalid data ({found}); export the verdict again") from error


def _written(finding: dict[str, Any]) -> dict[str, Any]:
    """Return a finding as plain data: ``kind`` becomes ``class``, a reserved word in Python, and a span becomes a list."""
    head = {"rule": finding.pop("rule"), "class": finding.pop("kind")}
    return {**head, **finding, "span_ns": finding["span_ns"] and list(finding["span_ns"])}


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the worst verdict, which decides for a window over several GPUs; the first on a tie.

    Raises ValueError: when there are no verdicts.
    """
    return max(verdicts, key=lambda verdict: verdict.status.badness)


# msgspec describes a type at its first use.  Threads that make this first use together read an unfinished description, which
# crashes the process: the description is made here, during the import.
_described = msgspec.json.Decoder(Verdict)
