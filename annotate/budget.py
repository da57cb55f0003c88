"""The budget of a verdict: how far each number can be off, by what, and what was shown.

Imports nothing heavy: the measured process reads verdicts too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import fsum, isfinite
from typing import TypeAlias

Figure: TypeAlias = str | int | float | bool | None

PRINTED_RATIO = 0.1  # of the tolerance: a smaller cause adds, and is printed only where all are asked for


class Number(StrEnum):
    """The numbers that a window gives, and the ratio of two windows where it is compared."""

    THROUGHPUT = "throughput"
    MEAN = "mean"
    MEDIAN = "median"
    MEDIAN_AT_CLOCK = "median_at_clock"
    RATIO = "ratio"


class Group(StrEnum):
    """Causes that share evidence: a group counts once, at its largest, and groups add.

    ``whole`` is evidence of the number itself, which holds every cause: it counts in place of their sum where it is larger.
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
    """The part of an earlier pass's bound that one with times takes the place of."""

    NOTHING = "nothing"
    UNRESOLVED = "unresolved"  # stamps whose mean agrees with the witness: what its noise could hide
    EXPLAINED = "explained"  # declared other work covers the cause: all of it


class Proof(StrEnum):
    """The five things a valid window has shown."""

    WORK_SEEN = "work-seen"
    BOOKS = "books"
    CONDITIONS = "conditions"
    NOBODY_ELSE = "nobody-else"
    STEADY_TIMES = "steady-times"


class ProofState(StrEnum):
    """The outcomes of a proof: shown, contradicted by evidence, short of evidence, or not asked for."""

    SHOWN = "shown"
    BROKEN = "broken"
    UNPROVEN = "unproven"
    NOT_ASKED = "not-asked"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A signed deviation of a number with its 95 % interval: the number over the undisturbed one, less 1."""

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
        """The distance of the interval's nearer end from zero; 0 if it holds zero."""
        return max(self.above_ratio, self.below_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The deviation that one cause does not exceed, in either direction.  A rule gives one for each number and group.

    ``ratio`` None means seen, and of unknown size.  ``seen_ratio`` is the part that a witness resolved, all of it unless
    stated; times and stamps never lower it.  Raises ValueError for figures that are none.
    """

    number: Number
    rule: str
    group: Group
    ratio: float | None
    estimate: Estimate | None = None
    can_reject: bool = True
    seen_ratio: float | None = None  # None only where ratio is: the seen part has no bound either
    span_ns: tuple[int, int] | None = None
    replaces: Replaces = Replaces.NOTHING

    def __post_init__(self) -> None:
        if self.seen_ratio is None:
            object.__setattr__(self, "seen_ratio", self.ratio)
        for part_ratio in (self.ratio, self.seen_ratio):
            if part_ratio is not None and not 0.0 <= part_ratio < float("inf"):
                raise ValueError(f"expected a bound of 0 or more, found {part_ratio} of {self.rule}")
        if self.size_ratio < (self.seen_ratio or 0.0):
            raise ValueError(f"expected at most {self.ratio} seen of {self.rule}, found {self.seen_ratio}")

    @property
    def size_ratio(self) -> float:
        """The bound as an amount to order by: infinite where there is none."""
        return float("inf") if self.ratio is None else self.ratio


@dataclass(frozen=True, slots=True)
class Repeatability:
    """The difference to expect between two undisturbed windows; ``kind`` says of what, or why it is unknown.

    Its square is that of ``within_ratio``, from this window alone, plus that of ``between_ratio``, from the record.  Without a
    record 0.06 to 0.44 % takes its place, by which this number was measured to differ between windows of unchanged work.
    """

    ratio: float | None = None
    kind: str = "not asked"
    windows_count: int = 0  # of the record
    within_ratio: float | None = None
    between_ratio: float | None = None


NOT_REPEATED = Repeatability()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberBudget:
    """One number, how far it can be off, and everything that can have moved it, largest first."""

    number: Number
    value: float | None = None
    unit: str = ""
    clock_mhz: float | None = None  # of the median at one clock
    bound_ratio: float | None = 0.0  # None: something was seen that has no bound
    estimate: Estimate | None = None
    bounds: tuple[Bound, ...] = ()
    repeatability: Repeatability = NOT_REPEATED
    other_cards_ratio: float | None = None  # of one clock: repeatability and spread between cards; None: none on record

    @property
    def counted(self) -> tuple[Bound, ...]:
        """The bounds that add up: the largest of each group, or the one of the whole number if it exceeds their sum."""
        causes = tuple(each for each in self.largest if each.group is not Group.WHOLE)
        whole = next((each for each in self.largest if each.group is Group.WHOLE), None)
        return (whole,) if whole is not None and whole.size_ratio > fsum(each.size_ratio for each in causes) else causes

    @property
    def largest(self) -> tuple[Bound, ...]:
        """The largest bound of each group."""
        return tuple(self._largest())

    @property
    def unbounded_by(self) -> tuple[str, ...]:
        """The rules that saw something and cannot bound it."""
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
    missing: tuple[str, ...] = ()  # of an unproven proof: the evidence it needs
    broken_by: tuple[str, ...] = ()  # of a broken one: the rules that say so, which a policy may accept
    facts: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BoundScope:
    """The reference of the bounds: the window itself, or this card's record of ``windows_count`` windows."""

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

    def is_printed(self, bound: Bound) -> bool:
        """Return whether a report names this cause unless asked for all."""
        return bound.size_ratio >= PRINTED_RATIO * self.tolerance_ratio
