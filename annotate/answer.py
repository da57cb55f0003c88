"""The answers a rule can give, and the weight of a hazard."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from annotate.budget import Bound
from annotate.evidence import Fact


class Severity(StrEnum):
    """The weight of a hazard: a remark, a doubt about the number, or a reason to reject the number."""

    NOTE = "note"
    FLAG = "flag"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Found:
    """The answer that the hazard is there.

    ``facts`` fill the rule's sentence and stay in the verdict.  ``effect_ratio`` is the estimated relative change of the
    measured time: 0.16 means 16 % too long, a negative value too short.  ``span_ns`` is the interval of the hazard.
    ``bounds`` limit the deviation of each number: the judge derives the severity of a bias from them.
    """

    severity: Severity = Severity.NOTE
    facts: Mapping[str, Fact] = field(default_factory=dict)
    effect_ratio: float | None = None
    span_ns: tuple[int, int] | None = None
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class Clear:
    """The answer that the evidence was there and the hazard was not."""

    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unobserved:
    """The answer of a rule without evidence, or of a rule that failed: then ``failure`` is the class of the exception."""

    reason: str
    failure: str | None = None


Answer: TypeAlias = Found | Clear | Unobserved
