"""A rule's result for one window, as part of a verdict.

The module avoids heavy imports because the measured process reads verdicts too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SEVERITIES = ("reject", "flag", "note")  # worst first: the values of annotate.answer.Severity
LABEL = "label"


class Answered(StrEnum):
    """The three results of a rule: FOUND, CLEAR, UNOBSERVED (evidence is missing, or the rule failed).

    Raises ValueError: when ``Answered(name)`` names no result.

    Example:
        >>> from annotate.verdict import Answered
        >>> Answered("clear") is Answered.CLEAR
        True
    """

    FOUND = "found"
    CLEAR = "clear"
    UNOBSERVED = "unobserved"


@dataclass(frozen=True, slots=True)
class OverriddenLimit:
    """A limit that a policy changed.

    Attributes:
        value: Limit that the policy set, in the unit that ends the limit's name.
        default: Limit of the rule without a policy, in the same unit.
    """

    value: float
    default: float


@dataclass(frozen=True, slots=True)
class FindingCause:
    """The cause of a hazard.

    Attributes:
        kind: Word for the cause, such as collector or run-queue.
        by: Evidence for the cause.
        overlap_ratio: Part of the hazard that the cause overlaps in time, as a ratio.
    """

    kind: str
    by: str
    overlap_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule's result for one window.  A verdict has one finding for every rule; only the judge makes findings.

    Attributes:
        rule: Name of the rule, as ``gpuwatch explain RULE`` takes it.
        kind: Class of this finding: bias, integrity or label; a note without bounds is a label. None in schema 1.
        answered: Result: found, clear or unobserved.
        severity: Severity of a found hazard: note, flag or reject; else None.
        says: Sentence for people; for an unobserved rule, the reason.
        remedy: Remedy of a hazard, as a sentence.
        facts: Words and amounts behind the sentence; the name of an amount ends in its unit.
        effect_ratio: Relative change of the measured time: 0.16 means 16 % too long; None if the change is unknown.
        span_ns: Start and end of the hazard on the window's clock, in nanoseconds; None without a known span.
        cause: Cause of the hazard, as a ``FindingCause``; None if the cause is unknown.
        basis: Kind of evidence that the rule reads, such as telemetry.
        required: True if the verdict cannot be valid while this rule is unobserved.
        accepted: True if the policy accepts this hazard.
        failure: Class of the exception that the rule raised; else None.
        limits_overridden: Limits that the policy changed, by name.

    Raises ValueError: when the severity is unknown.

    Example:
        >>> finding = judge(unpack(Path("window.capsule").read_bytes())[0]).finding("wrong-stream")
        >>> finding.answered.value, finding.severity
        ('found', 'flag')
        >>> sorted(finding.facts)  # doctest: +ELLIPSIS
        [...]
    """

    rule: str
    kind: str | None = None  # ``class`` in plain data
    answered: Answered
    severity: str | None = None  # the judge derives a bias's severity from its bounds
    says: str = ""
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)  # JSON scalars
    effect_ratio: float | None = None
    span_ns: tuple[int, int] | None = None
    cause: FindingCause | None = None
    basis: str = "telemetry"
    required: bool = False
    accepted: bool = False  # an accepted hazard stays in the verdict
    failure: str | None = None  # older verdicts have none
    limits_overridden: Mapping[str, OverriddenLimit] = field(default_factory=dict)  # older verdicts have none

    def __post_init__(self) -> None:
        if self.severity not in (None, *SEVERITIES):
            raise ValueError(f"expected a severity of {', '.join(SEVERITIES)} or none, found {self.severity!r}")

    @property
    def is_label(self) -> bool:
        """Return True for a found hazard of kind label, which reports print on the label line."""
        return self.answered is Answered.FOUND and self.kind == LABEL
