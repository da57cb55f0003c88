"""The bias of a clock that did not keep one level: the deviation of a window's numbers from those at each reference clock.

A reference is a level that holds a fifth of the window, an end of a drift or, under ``sustained``, the steady state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt

from annotate.budget import Bound, Estimate, Group, Number, Replaces
from annotate.derived.clock_blocks import CYCLE_NS, ClockBlocks
from annotate.derived.clock_shape import CLOCK_DRIFT, CLOCK_LEVELS, CLOCK_RAMP, REGIME_CHANGE, shape_name
from annotate.derived.load_time import LoadTime
from annotate.derived.steady_reference import SteadyBy, SteadyReference
from annotate.evidence import Values
from annotate.stats.change_points import SeriesLevel
from annotate.stats.robust import centre

CLOCK_RULES = (CLOCK_LEVELS, CLOCK_DRIFT, CLOCK_RAMP, REGIME_CHANGE)

_LEAST_RATIO = 0.2  # the specification: a level that holds a fifth could have been the window's own
_HALF = 0.5  # a level with at least this share is the window's clock; other levels only lead to it
_DEVIATES = 1.96  # normal, 95 %: the variance is already the largest over lengths up to half a cycle
_MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean
_SWING_RATIO = 0.025  # the true clock of a capped GEMM 16384 on an H200 swings by up to 2.4 % to either side (5-95 %)
_LEAST_TIME = 0.05  # part of the reference's time: keeps a rate's deviation finite

_Deviation: TypeAlias = tuple[float, float]  # deviation of the mean or median time from one reference, and half its interval
Places: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class NumberShift:
    """The bias of one number: its bound, the part of the bound that exceeds the clock's noise, and a signed estimate."""

    bound_ratio: float
    seen_ratio: float
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockShift:
    """The bias of one window's clock for each number, with the rule whose shape fits."""

    shifts: dict[Number, NumberShift]
    rule: str
    levels_mhz: tuple[float, ...]  # the slowest first
    levels_ratio: tuple[float, ...]  # parts of the window
    begin_mhz: float  # clock of the level at the window's start
    end_mhz: float
    steady_by: SteadyBy | None  # None: the claim has no steady reference
    can_reject: bool
    is_sharper: bool  # stamped, and the driver's gauge agrees
    span_ns: tuple[int, int] | None

    @property
    def bound_ratio(self) -> float:
        """Return the bound of the mean."""
        return self.shifts[Number.MEAN].bound_ratio


def clock_shift(
    blocks: ClockBlocks,
    levels: Sequence[SeriesLevel],
    variance: float,
    beta: float,
    *,
    load: LoadTime | None = None,
    steady: SteadyReference | None = None,
    edges_ratio: float = 0.0,
) -> ClockShift:
    """Return the deviation of a window's numbers from the numbers at each of its levels and in the steady state.

    ``variance`` is ``CaseSeries.clock_variance``: that of one block's logarithm, as the clock's cycle leaves it in a mean.
    The bound takes the farthest reference.  The estimate takes the nearer of the highest and lowest level, or the steady
    state if that is farther.  The cycle's effect on a single level is repeatability, not bias.  ``edges_ratio`` is the most
    that unstamped changes of level can hide.
    """
    logs = blocks.logs
    slowness = _Slowness(np.exp(-beta * (logs - logs.mean())), beta * variance**0.5)
    counted = _references(logs, levels)
    if blocks.swings and shape_name(logs, levels) == CLOCK_LEVELS:  # a clock that changes in one direction does not swing
        counted = _without_crests(logs, counted, round(CYCLE_NS / blocks.width_ns) // 2 + 2)
    mean = [slowness.beside(part) for part in counted]
    median = [slowness.median_beside(part) for part in counted]
    steady_mean, steady_median = _steady_deviations(blocks, slowness, beta, steady)
    mean_excess, median_excess = _excess_ratios(load, steady)
    shifts = {
        Number.THROUGHPUT: _shift([*map(_as_rate, mean)], [*map(_as_rate, steady_mean)], mean_excess),
        Number.MEAN: _shift(mean, steady_mean, -mean_excess),
        Number.MEDIAN: _shift(median, steady_median, -median_excess),
    }
    # The load names the shape if it enlarges the bound or, without a steady state, exceeds the bound of the levels.
    by_levels_ratio = _shift(mean, [], 0.0).bound_ratio
    by_onset = shifts[Number.MEAN].bound_ratio > by_levels_ratio or (not steady_mean and mean_excess > by_levels_ratio)
    return ClockShift(
        shifts={number: _widened(found, edges_ratio) for number, found in shifts.items()},
        rule=shape_name(logs, levels, by_onset=by_onset),
        levels_mhz=tuple(float(np.exp(level.mean)) for level in levels),
        levels_ratio=tuple(level.share_ratio for level in levels),
        begin_mhz=_level_mhz(levels, 0),
        end_mhz=_level_mhz(levels, len(logs) - 1),
        steady_by=steady.by if steady is not None else None,
        can_reject=steady is None or steady.by is not SteadyBy.RANGE or not by_onset,
        is_sharper=_is_stamped(blocks) and _agrees(blocks),
        span_ns=_span_ns(blocks, levels),
    )


def clock_bounds(shift: ClockShift, rule: str) -> tuple[Bound, ...]:
    """Return the bounds of one of ``CLOCK_RULES``: all if its shape fits, else none.

    If stamps agree with the driver's clock, the bounds replace the driver's uncertainty, whichever rule reported it.
    """
    if rule != shift.rule:
        return ()
    replaces = Replaces.UNRESOLVED if shift.is_sharper else Replaces.NOTHING
    return tuple(
        Bound(
            number=number,
            rule=rule,
            group=Group.CLOCK,
            ratio=found.bound_ratio,
            estimate=found.estimate,
            can_reject=shift.can_reject,
            seen_ratio=found.seen_ratio,
            span_ns=shift.span_ns,
            replaces=replaces,
        )
        for number, found in shift.shifts.items()
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Slowness:
    """The relative time of one call in each block, and the error that the clock's cycle leaves in one block."""

    values: Values
    block_error_ratio: float

    @property
    def error_ratio(self) -> float:
        """Return the standard error of the window's mean."""
        return self.block_error_ratio / float(np.sqrt(len(self.values)))

    def half_ratio(self, part: Places) -> float:
        """Return half of the 95 % interval of the window's deviation from a part; 0 if the part is the whole window."""
        share = len(part) / len(self.values)
        return _DEVIATES * self.error_ratio * float(np.sqrt((1.0 - share) / share))

    def beside(self, part: Places) -> _Deviation:
        return float(self.values.mean() / self.values[part].mean()) - 1.0, self.half_ratio(part)

    def median_beside(self, part: Places) -> _Deviation:
        ratio = centre(self.values) / centre(self.values[part]) - 1.0
        return ratio, _MEDIAN_ERROR * self.half_ratio(part)


def _as_rate(deviation: _Deviation) -> _Deviation:
    ratio, half_ratio = deviation
    time = max(1.0 + ratio, _LEAST_TIME)
    return 1.0 / time - 1.0, half_ratio / time**2


def _steady_deviations(
    blocks: ClockBlocks, slowness: _Slowness, beta: float, steady: SteadyReference | None
) -> tuple[list[_Deviation], list[_Deviation]]:
    """Return the deviations of mean and median from the steady state; empty unless the window or a record shows it."""
    if steady is None:
        return [], []
    if steady.places is not None:
        return [slowness.beside(steady.places)], [slowness.median_beside(steady.places)]
    if steady.mhz is None:
        return [], []
    median = (steady.mhz / float(np.median(blocks.mhz[blocks.known]))) ** beta - 1.0
    half_ratio = _DEVIATES * slowness.error_ratio
    return [(blocks.mean_shift_ratio(steady.mhz, beta), half_ratio)], [(median, _MEDIAN_ERROR * half_ratio)]


def _excess_ratios(load: LoadTime | None, steady: SteadyReference | None) -> tuple[float, float]:
    """Return the most by which mean and median speed can exceed the steady speed; 0 without an excess."""
    if load is None or steady is None or steady.excess is None:
        return 0.0, 0.0
    return load.excess_ratio(steady.excess), load.median_excess_ratio(steady.excess)


def _shift(levels: list[_Deviation], steady: list[_Deviation], excess_ratio: float) -> NumberShift:
    """Return one number's bias; ``levels`` come lowest clock first, and ``excess_ratio`` is the largest deviation by onset.

    If the window or a record shows the steady state, the excess limits the deviation that noise can hide.
    """
    ends = [levels[0], levels[-1]] if levels else [(0.0, 0.0)]
    ratio, half_ratio = max([min(ends, key=_farness), *steady], key=_farness)
    low_ratio, high_ratio = ratio - half_ratio, ratio + half_ratio
    if not steady and abs(excess_ratio) > abs(ratio):
        ratio, low_ratio, high_ratio = excess_ratio, min(excess_ratio, 0.0), max(excess_ratio, 0.0)
    resolved = [max(0.0, abs(each) - half) for each, half in (*levels, *steady)]
    bounds = [_level_bound(each, half, abs(excess_ratio)) for each, half in levels]
    bounds += [_steady_bound(each, half, abs(excess_ratio)) for each, half in steady]
    excess = 0.0 if steady else abs(excess_ratio)
    bound_ratio = max([*bounds, excess])
    return NumberShift(
        bound_ratio=bound_ratio,
        seen_ratio=max(resolved, default=0.0),  # without the model's excess, which was not observed in this window
        estimate=Estimate(*(min(max(each, -bound_ratio), bound_ratio) for each in (low_ratio, ratio, high_ratio))),
    )


def _widened(found: NumberShift, edges_ratio: float) -> NumberShift:
    return replace(found, bound_ratio=found.bound_ratio + edges_ratio)


def _level_bound(ratio: float, half_ratio: float, excess_ratio: float) -> float:
    """Return the largest deviation from a level: after a fresh load, the excess e(t) limits the part hidden in noise."""
    return min(abs(ratio) + half_ratio, max(abs(ratio), excess_ratio)) if excess_ratio else abs(ratio) + half_ratio


def _steady_bound(ratio: float, half_ratio: float, excess_ratio: float) -> float:
    """Return the largest deviation from the steady state.

    If the deviation agrees with the excess e(t), the excess limits the bound.  Otherwise another cause changed the clock,
    and the excess does not limit the bound.
    """
    if abs(ratio) - half_ratio <= excess_ratio:
        return min(abs(ratio) + half_ratio, excess_ratio)
    return abs(ratio) + half_ratio


def _farness(deviation: _Deviation) -> float:
    """Return the size of a deviation, equal for a time and its rate, so that both choose the same reference."""
    return abs(float(np.log(max(1.0 + deviation[0], _LEAST_TIME))))


def _is_stamped(blocks: ClockBlocks) -> bool:
    return blocks.stamped_ratio >= 0.5


def _agrees(
    blocks: ClockBlocks,
    *,
    lowest: Annotated[float, "under a cap an H200's gauge reads 8 to 12 % above the true clock"] = 0.85,
    highest: Annotated[float, "uncapped it agrees to 0.2 % (docs/HARDWARE.md)"] = 1.02,
) -> bool:
    """Return whether stamped and driver's clock agree within known errors; False if no stamps scaled the driver's clock."""
    return lowest <= blocks.scale <= highest and blocks.scale != 1.0


def _references(logs: Values, levels: Sequence[SeriesLevel]) -> list[Places]:
    """Return the parts of the window that count as references, lowest clock first: levels that hold a fifth.

    A long drift has many short levels.  The first and last fifth of a drift therefore count too, unless one level holds
    half of the window.
    """
    parts = [level.places for level in levels if level.share_ratio >= _LEAST_RATIO]
    is_settled = max(level.share_ratio for level in levels) >= _HALF
    if not is_settled and shape_name(logs, levels) == CLOCK_DRIFT:
        count = max(1, int(_LEAST_RATIO * len(logs)))
        parts += [np.arange(count), np.arange(len(logs) - count, len(logs))]
    return sorted(parts, key=lambda part: float(logs[part].mean()))


def _without_crests(logs: Values, parts: list[Places], half_count: int) -> list[Places]:
    """Return the references without crests of the controller's swing: near the mean, in runs of at most ``half_count`` blocks.

    The clock only passed through such a level.  If all references are crests, return all.
    """
    middle = float(logs.mean())
    kept = [
        part
        for part in parts
        if abs(float(logs[part].mean()) - middle) > _SWING_RATIO
        or max(map(len, np.split(part, np.flatnonzero(np.diff(part) > 1) + 1))) > half_count
    ]
    return kept or parts


def _level_mhz(levels: Sequence[SeriesLevel], place: int) -> float:
    return next(float(np.exp(level.mean)) for level in levels if place in level.places)


def _span_ns(blocks: ClockBlocks, levels: Sequence[SeriesLevel]) -> tuple[int, int] | None:
    """Return the span of the rarer of the outermost levels, or None for a single level."""
    if len(levels) < 2:
        return None
    rarer = min((levels[0], levels[-1]), key=lambda level: level.count)
    at_ns = blocks.at_ns[blocks.known]
    return int(at_ns[rarer.places[0]]), int(at_ns[rarer.places[-1]]) + blocks.width_ns
