"""The answers a rule can give, and the weight of a hazard."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from annotate.budget import Bound
from annotate.evidence import Fact


class Severity(StrEnum):
    """The weight of a hazard: a label, a stated limit on the number's use, or an end to it."""

    NOTE = "note"
    FLAG = "flag"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Found:
    """The hazard is there.

    ``facts`` fill the rule's sentence and stay in the verdict; ``effect_ratio`` is the estimated relative change of the
    measured time (0.16: 16 % longer than it should read; negative: it reads too short); ``span_ns`` is when it happened.
    ``bounds`` say by how much each number can be off for it; a bias rule gives them, and the judge makes the severity.
    """

    severity: Severity = Severity.NOTE
    facts: Mapping[str, Fact] = field(default_factory=dict)
    effect_ratio: float | None = None
    span_ns: tuple[int, int] | None = None
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class Clear:
    """The evidence was there and the hazard was not."""

    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unobserved:
    """The rule could not tell, and why; ``failure`` is the class of the exception with which it failed, if it did."""

    reason: str
    failure: str | None = None


Answer: TypeAlias = Found | Clear | Unobserved
