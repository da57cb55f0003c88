"""The budget of a verdict: the bound on each number's deviation, the causes, and the proofs.

The module avoids heavy imports because the measured process reads verdicts too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import fsum, inf, isfinite
from typing import TypeAlias

Figure: TypeAlias = str | int | float | bool | None

PRINTED_RATIO = 0.1  # least printed part of the tolerance; smaller causes still add up


class Number(StrEnum):
    """The numbers of a window, and the ratio of two compared windows."""

    THROUGHPUT = "throughput"
    MEAN = "mean"
    MEDIAN = "median"
    MEDIAN_AT_CLOCK = "median_at_clock"
    RATIO = "ratio"


class Group(StrEnum):
    """Groups of causes that share evidence: the largest bound of each group counts, and groups add up.

    ``whole`` is evidence of the number itself, which includes every cause: ``whole`` replaces the sum if it is larger.
    """

    IDLE = "idle"
    INSIDE = "inside"
    CLOCK = "clock"
    DUTY = "duty"
    MEMORY = "memory"
    LINK = "link"
    BOOKS = "books"
    RECORD = "record"
    TIMES = "times"
    TIMER = "timer"
    PARTITION = "partition"
    DARK = "dark"
    PAIR = "pair"
    WHOLE = "whole"


class Replaces(StrEnum):
    """The part of an earlier pass's bound that a bound from times replaces."""

    NOTHING = "nothing"
    UNRESOLVED = "unresolved"  # the part that the witness's noise could hide


class Proof(StrEnum):
    """The five proofs of a valid window."""

    WORK_SEEN = "work-seen"
    BOOKS = "books"
    CONDITIONS = "conditions"
    NOBODY_ELSE = "nobody-else"
    STEADY_TIMES = "steady-times"


class ProofState(StrEnum):
    """The outcomes of a proof: shown, contradicted by evidence, lacking evidence, or not required."""

    SHOWN = "shown"
    BROKEN = "broken"
    UNPROVEN = "unproven"
    NOT_ASKED = "not-asked"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A signed deviation of a number with its 95 % interval: the number over the undisturbed one, minus 1.

    Raises ValueError: when a figure is not finite, or the three are not in ascending order.
    """

    low_ratio: float
    value_ratio: float
    high_ratio: float

    def __post_init__(self) -> None:
        ends = (self.low_ratio, self.value_ratio, self.high_ratio)
        if not all(map(isfinite, ends)) or not self.low_ratio <= self.value_ratio <= self.high_ratio:
            raise ValueError(f"expected an estimate as low, value and high in order, found {ends}")

    @property
    def above_ratio(self) -> float:
        """Return how far above zero the whole interval lies; 0 if it does not."""
        return max(0.0, self.low_ratio)

    @property
    def below_ratio(self) -> float:
        """Return how far below zero the whole interval lies; 0 if it does not."""
        return max(0.0, -self.high_ratio)

    @property
    def nearer_ratio(self) -> float:
        """Return the distance of the interval's nearer end from zero; 0 if the interval contains zero."""
        return max(self.above_ratio, self.below_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The largest deviation that one cause can make, in either direction.

    ``ratio`` is None for a cause of unknown size.  ``seen_ratio`` is the part that a witness resolved, by default all of
    ``ratio``; times and stamps never lower ``seen_ratio``.

    Raises ValueError: when a figure is negative or not finite, or the seen part exceeds the bound.
    """

    number: Number
    rule: str
    group: Group
    ratio: float | None
    estimate: Estimate | None = None
    can_reject: bool = True
    seen_ratio: float | None = None  # None only if ratio is None: the seen part has no bound either
    span_ns: tuple[int, int] | None = None
    replaces: Replaces = Replaces.NOTHING

    def __post_init__(self) -> None:
        if self.seen_ratio is None:
            object.__setattr__(self, "seen_ratio", self.ratio)
        for part_ratio in (self.ratio, self.seen_ratio):
            if part_ratio is not None and not 0.0 <= part_ratio < inf:
                raise ValueError(f"{self.rule}: expected a bound of 0 or more, found {part_ratio}")
        if self.size_ratio < (self.seen_ratio or 0.0):
            raise ValueError(f"{self.rule}: expected a seen part of at most {self.ratio}, found {self.seen_ratio}")

    @property
    def size_ratio(self) -> float:
        """Return the bound for sorting: infinite if ``ratio`` is None."""
        return inf if self.ratio is None else self.ratio


@dataclass(frozen=True, slots=True)
class Repeatability:
    """The difference to expect between two undisturbed windows; ``kind`` names the source, or why the difference is unknown.

    ``ratio``² is ``within_ratio``² of this window plus ``between_ratio``² of the record.  Without a record, a measured
    difference between windows of unchanged work takes the place of ``between_ratio`` (``annotate.derived.measured_numbers``).
    """

    ratio: float | None = None
    kind: str = "not asked"
    windows_count: int = 0  # windows in the record
    within_ratio: float | None = None
    between_ratio: float | None = None


NOT_REPEATED = Repeatability()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberBudget:
    """One number, the bound on its deviation, and the bounds of all causes, largest first."""

    number: Number
    value: float | None = None
    unit: str = ""
    clock_mhz: float | None = None  # clock of the median at one clock
    bound_ratio: float | None = 0.0  # None: a cause has no bound
    estimate: Estimate | None = None
    bounds: tuple[Bound, ...] = ()
    repeatability: Repeatability = NOT_REPEATED
    other_cards_ratio: float | None = None  # only for the median at one clock: repeatability plus spread between cards

    @property
    def counted(self) -> tuple[Bound, ...]:
        """Return the bounds that add up: the largest of each group, or the bound ``whole`` if it exceeds the sum."""
        largest = self.largest
        causes = tuple(each for each in largest if each.group is not Group.WHOLE)
        whole = next((each for each in largest if each.group is Group.WHOLE), None)
        return (whole,) if whole is not None and whole.size_ratio > fsum(each.size_ratio for each in causes) else causes

    @property
    def largest(self) -> tuple[Bound, ...]:
        """Return the largest bound of each group."""
        return tuple(self._largest())

    @property
    def unbounded_by(self) -> tuple[str, ...]:
        """Return the rules that found a cause without a bound."""
        return tuple(bound.rule for bound in self.bounds if bound.ratio is None)

    def _largest(self) -> Iterator[Bound]:
        groups: set[Group] = set()
        for bound in self.bounds:
            if bound.group not in groups:
                groups.add(bound.group)
                yield bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofShown:
    """One proof: its state, the words of the line "shown", and the figures behind them."""

    proof: Proof
    state: ProofState
    says: str = ""
    missing: tuple[str, ...] = ()  # missing evidence of an unproven proof, or of one that a policy accepts as broken
    broken_by: tuple[str, ...] = ()  # rules that break the proof; a policy may accept them
    facts: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BoundScope:
    """The reference of the bounds: the window itself, or this card's record (``record``) of ``windows_count`` windows."""

    kind: str = "itself"
    windows_count: int = 0


ITSELF = BoundScope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Every number's budget under the thresholds in force, and the five proofs."""

    tolerance_ratio: float
    precision_ratio: float | None = None
    claimed: tuple[Number, ...]  # the numbers that decided the status
    leading: Number | None = None  # the number of the first line
    numbers: tuple[NumberBudget, ...]
    proofs: tuple[ProofShown, ...] = ()
    scope: BoundScope = ITSELF

    def number(self, number: Number) -> NumberBudget | None:
        return next((each for each in self.numbers if each.number is number), None)

    def largest_of(self, rule: str) -> Bound | None:
        """Return the rule's largest bound on the claimed numbers, else on any; None without a bound."""
        mine = [bound for number in self.numbers for bound in number.bounds if bound.rule == rule]
        claimed = [bound for bound in mine if bound.number in self.claimed] or mine
        return max(
            claimed, key=lambda each: (each.size_ratio, abs(each.estimate.value_ratio) if each.estimate else 0.0), default=None
        )

    def is_printed(self, bound: Bound) -> bool:
        """Return True if a report prints this cause by default."""
        return bound.size_ratio >= PRINTED_RATIO * self.tolerance_ratio
