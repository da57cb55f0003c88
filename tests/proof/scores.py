"""Coverage, sharpness, status errors and named hazards of any judge on pairs with a known true deviation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np
from scipy.special import bdtr

from annotate.evidence import Evidence
from tests.proof.disturbances import NOTHING
from tests.proof.pairs import NUMBERS, Pair
from tests.rate_bounds import clopper_pearson

VALID = "valid"
TOLERANCE_RATIO = 0.01
SHARP_S = 3.0  # shortest clean window that counts for sharpness
_LEVEL = 0.95
_ROUNDING = 1e-9  # slack for rounding errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A judge's answer for one window: bound and repeatability of each number, status, and named hazards.

    A number without an answer is absent or NaN.  An infinite bound is an answer.
    """

    bounds: Mapping[str, float]
    repeatability: Mapping[str, float]
    status: str
    named: frozenset[str] = frozenset()


class Judge(Protocol):
    """A function that returns a judge's answer for one window."""

    def __call__(self, evidence: Evidence, /) -> Answer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One judged window with its true deviations, which are zero for a clean window."""

    seed: int
    family: str
    clean: bool
    workload: str
    variant: str
    length_s: float
    truth: Mapping[str, float]
    answer: Answer

    def bound(self, number: str) -> float | None:
        """Return the bound of a number, or None without an answer."""
        found = self.answer.bounds.get(number)
        return None if found is None or math.isnan(found) else found

    def repeatability(self, number: str) -> float:
        found = self.answer.repeatability.get(number, 0.0)
        return 0.0 if math.isnan(found) else found

    def covers(self, number: str) -> bool | None:
        """Return whether the true deviation lies within bound plus repeatability, or None without an answer."""
        bound = self.bound(number)
        return None if bound is None else abs(self.truth[number]) <= bound + self.repeatability(number) + _ROUNDING

    def is_off(self, tolerance_ratio: float) -> bool:
        """Return whether a number with an answer is off by more than tolerance plus repeatability.

        Without any answer, the throughput decides.
        """
        spoken = [number for number in NUMBERS if self.bound(number) is not None] or ["throughput"]
        return any(abs(self.truth[number]) > tolerance_ratio + self.repeatability(number) for number in spoken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A count out of a total with its exact (Clopper–Pearson) interval, and the number of rows without an answer."""

    count: int
    total: int
    unanswered: int = 0
    unbounded: int = 0  # counted answers with an infinite bound

    @property
    def ratio(self) -> float | None:
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval, or 0 to 1 if the total is 0."""
        return clopper_pearson(self.count, self.total, _LEVEL)

    def is_at_least(self, target: float) -> bool:
        """Return whether the interval's lower end meets the target."""
        return self.interval[0] >= target

    def is_at_most(self, target: float) -> bool:
        """Return whether the interval's upper end meets the target."""
        return self.interval[1] <= target


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A quantile of a sample, with a distribution-free 95 % interval from order statistics."""

    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusErrors:
    """Both errors of the status: clean windows not called valid, and windows that are off but called valid."""

    clean_not_valid: Share
    off_called_valid: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The shares of a family's rows that name a hazard of the family, and that name another hazard."""

    own: Share
    by_catch: Share
    names: Mapping[str, int] = field(default_factory=dict)


def rows(pairs: Iterable[Pair], judge: Judge) -> Iterator[Row]:
    """Judge both windows of each pair, or only the clean window of a pair without a disturbance."""
    for each in pairs:
        if each.family != NOTHING:
            yield _judge_row(each, each.disturbed, clean=False, truth=asdict(each.truth), judge=judge)
        yield _judge_row(each, each.clean, clean=True, truth=dict.fromkeys(NUMBERS, 0.0), judge=judge)


def _judge_row(pair: Pair, evidence: Evidence, *, clean: bool, truth: Mapping[str, float], judge: Judge) -> Row:
    return Row(
        seed=pair.seed,
        family=NOTHING if clean else pair.family,
        clean=clean,
        workload=pair.workload,
        variant=pair.variant.value,
        length_s=pair.length_s,
        truth=truth,
        answer=judge(evidence),
    )


def coverage(judged: Iterable[Row], number: str) -> Share:
    """Return the share of answers whose true deviation lies within bound plus repeatability."""
    kept = list(judged)
    answers = [row.covers(number) for row in kept]
    return Share(
        count=sum(answer is True for answer in answers),
        total=sum(answer is not None for answer in answers),
        unanswered=sum(answer is None for answer in answers),
        unbounded=sum(row.bound(number) == math.inf for row in kept),
    )


def coverage_by_family(judged: Iterable[Row], number: str) -> dict[str, Share]:
    """Return the coverage of the rows of each family."""
    families: dict[str, list[Row]] = {}
    for row in judged:
        families.setdefault(row.family, []).append(row)
    return {family: coverage(found, number) for family, found in sorted(families.items())}


def sharpness(
    judged: Iterable[Row], number: str, *, ratio: float, select: Callable[[Row], bool] = lambda row: True
) -> Quantile | None:
    """Return a quantile of the bounds of clean windows of at least 3 s, or None without any."""
    found = [row.bound(number) for row in judged if row.clean and row.length_s >= SHARP_S and select(row)]
    return quantile([bound for bound in found if bound is not None], ratio)


def quantile(values: Sequence[float], ratio: float) -> Quantile | None:
    """Return a sample's quantile, or None for an empty sample.  Too few values make an end of the interval infinite."""
    if not len(values):
        return None
    ordered, count = np.sort(np.asarray(values, np.float64)), len(values)
    tail = (1.0 - _LEVEL) / 2.0
    below = bdtr(np.arange(count + 1), count, ratio)
    first, last = int(np.searchsorted(below, tail)), int(np.searchsorted(below, 1.0 - tail)) + 1
    return Quantile(
        value=float(ordered[min(count - 1, int(ratio * count))]),
        low=float(ordered[first - 1]) if first >= 1 else -math.inf,
        high=float(ordered[last - 1]) if last <= count else math.inf,
        count=count,
    )


def status_errors(judged: Iterable[Row], *, tolerance_ratio: float = TOLERANCE_RATIO) -> StatusErrors:
    """Count clean windows not called valid, and windows off by more than tolerance plus repeatability but called valid."""
    kept = list(judged)
    clean = [row for row in kept if row.clean]
    off = [row for row in kept if not row.clean and row.is_off(tolerance_ratio)]  # a clean window is never off
    return StatusErrors(
        clean_not_valid=Share(count=sum(row.answer.status != VALID for row in clean), total=len(clean)),
        off_called_valid=Share(count=sum(row.answer.status == VALID for row in off), total=len(off)),
    )


def naming(judged: Iterable[Row], own: Mapping[str, frozenset[str]]) -> dict[str, Naming]:
    """Return the naming of hazards for each family; ``own`` maps a family to the family's hazards."""
    families: dict[str, list[Row]] = {}
    for row in judged:
        families.setdefault(row.family, []).append(row)
    out: dict[str, Naming] = {}
    for family, found in sorted(families.items()):
        names = own.get(family, frozenset())
        counts: dict[str, int] = {}
        for name in sorted(name for row in found for name in row.answer.named):
            counts[name] = counts.get(name, 0) + 1
        out[family] = Naming(
            own=Share(count=sum(bool(row.answer.named & names) for row in found), total=len(found)),
            by_catch=Share(count=sum(bool(row.answer.named - names) for row in found), total=len(found)),
            names=counts,
        )
    return out
