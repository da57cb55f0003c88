"""A sweep over shapes and types: decisions with Holm's correction, the trend, and the crossover."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuwatch.diff.timed_pair import TimedPair

_CONFIDENT_RATIO = 0.05  # the chance of any wrong difference in the whole table
_Z_95 = 1.959964  # half an interval of 95 %, in standard errors
_LEAST_TREND_COUNT = 3


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One shape and type with its times."""

    sizes: Mapping[str, int]
    types: Mapping[str, str]
    timed: TimedPair

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in {**self.sizes, **self.types}.items())


@dataclass(frozen=True, slots=True)
class Trend:
    """The growth of the ratio with each doubling of the one size that varies, with its interval (95 %), as ratios."""

    name: str
    growth: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        return not self.low <= 1.0 <= self.high


@dataclass(frozen=True, slots=True)
class ShapeSweep:
    """All points; trend and crossover are None unless one size alone varies."""

    points: tuple[SweepPoint, ...]
    trend: Trend | None
    crossover: float | None  # the size at which both are equally fast


def summarise(points: Sequence[SweepPoint]) -> ShapeSweep:
    """Return the sweep with corrected decisions, trend and crossover."""
    corrected = correct(points)
    name = _varying(points)
    along = [(float(each.sizes[name]), each.timed) for each in corrected if name and each.timed.ratio]
    along.sort(key=lambda pair: pair[0])
    return ShapeSweep(tuple(corrected), fit_trend(name, along) if name else None, find_crossover(along))


def correct(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Return the points; a difference that fails Holm's correction (1979) becomes INCONCLUSIVE."""
    differing = (each for each in points if each.timed.decision in ("FASTER", "SLOWER"))
    ordered = sorted(differing, key=lambda each: _chance(each.timed))
    failing = (rank for rank, each in enumerate(ordered) if _chance(each.timed) > _CONFIDENT_RATIO / (len(points) - rank))
    lost = ordered[next(failing, len(ordered)) :]
    reason = f"a difference alone, but not among {len(points)} points (Holm)"
    return [
        replace(each, timed=replace(each.timed, decision="INCONCLUSIVE", reason=reason)) if each in lost else each
        for each in points
    ]


def fit_trend(name: str, along: Sequence[tuple[float, TimedPair]]) -> Trend | None:
    """Return the slope of the log ratio over doublings of a size, by least squares; None for fewer than three sizes."""
    import numpy as np
    from scipy.special import stdtrit

    if len({size for size, _ in along}) < _LEAST_TREND_COUNT:
        return None
    x = np.log2([size for size, _ in along])
    y = np.log([timed.ratio for _, timed in along if timed.ratio])
    (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
    half = float(stdtrit(len(x) - 2, 0.975)) * math.sqrt(covariance[0, 0])
    return Trend(name, math.exp(slope), math.exp(slope - half), math.exp(slope + half))


def find_crossover(along: Sequence[tuple[float, TimedPair]]) -> float | None:
    """Return the size at which the ratio is 1, interpolated on log axes between adjacent FASTER and SLOWER sizes; else None."""
    clear = [(size, timed) for size, timed in along if timed.decision in ("FASTER", "SLOWER")]
    for (size, timed), (next_size, following) in pairwise(clear):
        if timed.decision != following.decision and timed.ratio and following.ratio:
            one, other = math.log(timed.ratio), math.log(following.ratio)
            return math.exp(math.log(size) + one / (one - other) * (math.log(next_size) - math.log(size)))
    return None


def _varying(points: Sequence[SweepPoint]) -> str:
    """Return the only size that varies; empty if none or several vary, or if types vary."""
    names = [name for name in points[0].sizes if len({each.sizes.get(name) for each in points}) > 1]
    has_one_type = len({tuple(each.types.items()) for each in points}) == 1
    return names[0] if len(names) == 1 and has_one_type else ""


def _chance(timed: TimedPair) -> float:
    """Return the p-value of a ratio from its interval; 1 without a ratio."""
    if not (timed.ratio and timed.ratio_low and timed.ratio_high):
        return 1.0
    error = max(1e-12, math.log(timed.ratio_high / timed.ratio_low) / 2 / _Z_95)
    return math.erfc(abs(math.log(timed.ratio)) / error / math.sqrt(2))
