"""Levels and growth of a window's times, and the bounds that follow for each number.

Stamped times are converted to one clock first, so that only changes of the work remain.  Raw times follow the clock; their
bounds count in the group of the clock.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from annotate.budget import Bound, Estimate, Group, Number
from annotate.derived.clock_blocks import CYCLE_NS, entry_blocks
from annotate.derived.held import may_be_capped
from annotate.evidence import Evidence, Times, Timings, Values
from annotate.stats.change_points import (
    SeriesLevel,
    beside_levels,
    change_cost,
    change_points,
    find_levels,
    hidden_step,
    swing_variance,
)
from annotate.stats.long_run import adjacent_variance, cycle_variance
from annotate.stats.robust import centre, trimmed_means
from annotate.times.at_one_clock import OneClockTimes

FEWEST_COUNT, FEWEST_LONG_COUNT, LONG_S = 6, 3, 1.0
_LEAST_RATIO = 0.2  # the specification: a level counts if it holds a fifth
_TRIM_RATIO = 0.1  # part of a block's entries that is cut at either end: another rule counts late entries
_STEADY_RATIO = 1e-4  # the stamps' noise, the least noise of a block
_BLOCK_NS, _ENTRIES_COUNT, _MOST_BLOCKS = 100_000_000, 30, 600
_FEW_BLOCKS, _FEW_ENTRIES_COUNT = 12, 3  # a short window is cut finer, or it could have no levels
_LEAST_BLOCKS = 4  # two segments of two: fewer show no change
_SPARSE_RATIO = 1 / 3  # a block with less than this part of the median number of entries is next to a pause
_SLOPES_COUNT = 120  # blocks that give the slope: the cost grows with the square of this count
_SURE_SD = 1.96
_COMMON_RATIO = 0.43  # 2 − π / 2, for a median of normal values and the mean of a part; for two means, 1
_STAIRS_COUNT, _STAIR_COUNT = 3, 3  # segments in one direction, and blocks of each: a shorter one may be the change itself
_LEAST_CYCLES = 1.5  # fewer cycles do not separate a swing from a change
_SWING_RATIO = 0.12  # swing of raw capped times within half a second, in recordings of an H200


@dataclass(frozen=True, slots=True)
class LevelShift:
    """The deviation of each number from one level of the window, and the error of that deviation."""

    throughput_ratio: float
    median_ratio: float
    error_ratio: float

    @property
    def mean_ratio(self) -> float:
        return 1.0 / (1.0 + self.throughput_ratio) - 1.0

    def of(self, number: Number) -> float:
        if number is Number.THROUGHPUT:
            return self.throughput_ratio
        return self.mean_ratio if number is Number.MEAN else self.median_ratio


@dataclass(frozen=True, eq=False)
class TimeLevels:
    """The mean time in each block of a window, with the levels or the straight line that fits them better."""

    at_ns: Times
    width_ns: int
    took_s: Values  # trimmed mean of each block
    counts: Values  # number of entries in each block
    median_s: float  # median of all entries
    variance: float  # variance of the logarithm per block: the noise and controller cycle left in a segment's mean
    changes: tuple[int, ...]
    slope: float  # slope of the logarithm per block
    is_at_one_clock: bool
    # Levels of the times as measured, if ``took_s`` is converted by the driver's clock.  The shifts come from the measured
    # times, because heavy work also lowers the clock.
    raw: "TimeLevels | None" = None

    @cached_property
    def levels(self) -> tuple[SeriesLevel, ...]:
        """Return the levels of the logarithm, the fastest first."""
        return find_levels(np.log(self.took_s), self.variance, changes=self.changes)

    @cached_property
    def is_line(self) -> bool:
        """Return whether a straight line explains more than levels do, after a cost for each parameter."""
        logs = np.log(self.took_s)
        cost = change_cost(logs, self.variance)
        within = sum(float(np.square(logs[each.places] - each.mean).sum()) for each in self.levels)
        beside = float(np.square(_off_line(logs, self.slope)).sum())
        whole = float(np.square(logs - logs.mean()).sum())
        return beside + cost < min(whole, within + cost * len(self.changes))

    @cached_property
    def beside(self) -> Values:
        """Return the logarithm of each block's time minus the mean of the block's level."""
        return beside_levels(np.log(self.took_s), self.levels)

    @cached_property
    def grows(self) -> bool:
        """Return whether the times change in one direction only: along a line, or in three or more stairs."""
        if self.is_line:
            return True
        steps = np.diff(self._stairs)
        return len(self._stairs) >= _STAIRS_COUNT and bool((steps > 0).all() or (steps < 0).all())

    @cached_property
    def _stairs(self) -> Values:
        """Return the mean time of each segment of three or more blocks: a shorter one may be the change itself."""
        edges = (0, *self.changes, len(self.took_s))
        return np.array([self.took_s[a:b].mean() for a, b in pairwise(edges) if b - a >= _STAIR_COUNT])

    @property
    def is_steady(self) -> bool:
        return not self.is_line and len(self.levels) < 2

    @property
    def growth_ratio(self) -> float:
        """Return the relative growth from the first times to the last, along the line or from first to last stair."""
        if self.is_line:
            return float(np.expm1(self.slope * len(self.took_s)))
        return float(self._stairs[-1] / self._stairs[0] - 1.0) if len(self._stairs) else 0.0

    @property
    def apart_ratio(self) -> float:
        """Return the relative excess of the slowest level over the fastest."""
        return float(np.expm1(self.levels[-1].mean - self.levels[0].mean)) if self.levels else 0.0

    @property
    def hidden_ratio(self) -> float:
        """Return the largest effect on the mean of an undetected step of half of the window; infinite for few blocks."""
        return hidden_step(count, self.variance) / 2.0 if (count := len(self.took_s)) >= _LEAST_BLOCKS else float("inf")

    @cached_property
    def shifts(self) -> tuple[LevelShift, ...]:
        """Return the shifts from levels with a fifth, or from a line's first and last fifth, fastest first; empty if steady."""
        if self.is_steady:
            return ()
        count = len(self.took_s)
        if self.is_line:
            fifth = max(1, round(_LEAST_RATIO * count))
            places = [np.arange(fifth), np.arange(count - fifth, count)]
            return tuple(self._shift(each) for each in (places if self.slope > 0 else places[::-1]))
        return tuple(self._shift(each.places) for each in self.levels if self._share_ratio(each) >= _LEAST_RATIO)

    def _share_ratio(self, level: SeriesLevel) -> float:
        """Return the larger of a level's share of the window and its share of the entries."""
        return max(level.share_ratio, float(self.counts[level.places].sum() / self.counts.sum()))

    @property
    def largest_ratio(self) -> float:
        """Return the largest deviation of the mean, 0 where the times are steady."""
        return max((abs(each.mean_ratio) for each in self.shifts), default=0.0)

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Return the span of the level with the fewest blocks, or None for growth and for steady times."""
        if self.is_steady or self.grows:
            return None
        places = min(self.levels, key=lambda each: each.count).places
        return int(self.at_ns[places[0]]), int(self.at_ns[places[-1]]) + self.width_ns

    def bounds(self, rule: str) -> tuple[Bound, ...]:
        """Return each number's bound, if any: the largest deviation from a level, with an estimate by the nearer outer one."""
        if not self.shifts:
            return ()
        numbers = [Number.THROUGHPUT, Number.MEAN, Number.MEDIAN]
        if self.is_at_one_clock:
            numbers.append(Number.MEDIAN_AT_CLOCK)
        return tuple(self._bound(rule, number) for number in numbers)

    def _bound(self, rule: str, number: Number) -> Bound:
        largest = max(abs(each.of(number)) + each.error_ratio for each in (*self.shifts, *self._ends))
        nearer = min((self.shifts[0], self.shifts[-1]), key=lambda each: abs(each.of(number)))
        value, error = nearer.of(number), nearer.error_ratio
        return Bound(
            number=number,
            rule=rule,
            group=Group.TIMES if self.is_at_one_clock else Group.CLOCK,
            ratio=largest,
            estimate=Estimate(value - error, value, value + error),
            span_ns=self.span_ns,
        )

    @cached_property
    def _ends(self) -> tuple[LevelShift, ...]:
        """Return shifts from the line's ends (not with ``raw``) and from the first and last two blocks; empty without a line."""
        if not self.is_line:
            return ()
        places = np.arange(len(self.took_s))
        if self.raw is not None:
            return self._shift(places[:2]), self._shift(places[-2:])
        logs = np.log(self.took_s)
        middle, half = float(logs.mean()), 0.5 * self.slope * len(logs)
        error = self.shifts[0].error_ratio
        ends = tuple(self._shift_from(float(np.exp(end)), error) for end in (middle - half, middle + half))
        return (*ends, self._shift(places[:2]), self._shift(places[-2:]))

    def _shift(self, places: npt.NDArray[np.intp]) -> LevelShift:
        if self.raw is not None:
            return self.raw._shift(places)  # noqa: SLF001 - of the same class
        level_s = float(np.exp(np.log(self.took_s[places]).mean()))
        # A level is a part of the window: the errors of both have this in common.
        error = _SURE_SD * (self.variance * (1.0 / len(places) - _COMMON_RATIO / len(self.took_s))) ** 0.5
        return self._shift_from(level_s, float(error))

    def _shift_from(self, level_s: float, error_ratio: float) -> LevelShift:
        return LevelShift(float((level_s / self.took_s).mean()) - 1.0, self.median_s / level_s - 1.0, error_ratio)


def has_enough(timings: Timings) -> bool:
    """Return whether there are enough entries to judge their steadiness: six, or three with a median of 1 s or more."""
    count = len(timings.at_ns)
    return count >= FEWEST_COUNT or (count >= FEWEST_LONG_COUNT and _is_long(timings))


def _is_long(timings: Timings) -> bool:
    return centre(timings.took_s) * timings.calls_count >= LONG_S


def time_levels(evidence: Evidence, timings: Timings, times: OneClockTimes) -> TimeLevels | None:
    """Return the levels of these times, or None for fewer than six entries (three of a second each).

    A block holds 100 ms and 30 calls (at one clock three calls) or more; short windows have up to 12 blocks of three entries.
    """
    if evidence.window.length_ns <= 0 or not has_enough(timings) or not len(times.took_s):
        return None
    # Under a cap, raw times swing with the power controller.  Times at one clock do not.
    swings = not times.is_at_one_clock and may_be_capped(evidence)
    entries_count = _FEW_ENTRIES_COUNT if times.is_at_one_clock else _ENTRIES_COUNT
    at_ns, width_ns = _block_begins(evidence, len(times.took_s), timings.calls_count, entries_count)
    place = entry_blocks(Timings(times.at_ns, times.took_s, None, timings.calls_count), at_ns)
    means_s, counts = trimmed_means(place, times.took_s, len(at_ns), trim_ratio=_TRIM_RATIO)
    kept = counts >= max(1.0, _SPARSE_RATIO * centre(counts[counts > 0]))
    means_s, at_ns = means_s[kept], at_ns[kept]
    logs = np.log(means_s)
    slope = _slope(logs)
    # Each of up to five blocks holds a fifth, and an entry of a second or more averages its own noise.
    is_each_level = len(logs) <= 1.0 / _LEAST_RATIO and _is_long(timings)
    if is_each_level:
        variance = _cut_cycle_variance(len(logs), width_ns) if swings else 0.0
    else:
        variance = _swing_variance(logs, slope, width_ns) if swings else adjacent_variance(logs)
    variance = max(variance, _STEADY_RATIO**2)
    return TimeLevels(
        at_ns=at_ns,
        width_ns=width_ns,
        took_s=means_s,
        counts=counts[kept],
        median_s=centre(times.took_s),
        variance=variance,
        changes=change_points(logs, variance, shortest_count=1 if is_each_level else 2),
        slope=slope,
        is_at_one_clock=times.is_at_one_clock,
    )


def _block_begins(evidence: Evidence, entries_count: int, calls_count: int, least_count: int) -> tuple[Times, int]:
    """Return the start time of each block and the common width.  An entry of merged calls counts as that many times."""
    length_ns, each_count = evidence.window.length_ns, entries_count * calls_count
    count = min(length_ns // _BLOCK_NS, each_count // least_count, entries_count, _MOST_BLOCKS)
    count = max(1, count, min(_FEW_BLOCKS, entries_count // _FEW_ENTRIES_COUNT))
    return evidence.window.begin_ns + length_ns * np.arange(count, dtype=np.int64) // count, max(1, length_ns // count)


def _swing_variance(logs: Values, slope: float, width_ns: int) -> float:
    """Return the variance that the swing of the power controller leaves.

    The result is the smaller of the variances with and without the line: a slope inflates one, a change of level the other.
    Below 1.5 cycles the result is the variance that just hides a step as large as the swing.
    """
    if len(logs) * width_ns < _LEAST_CYCLES * CYCLE_NS:
        return float((_SWING_RATIO / hidden_step(len(logs), 1.0)) ** 2)
    cycle = round(CYCLE_NS / width_ns)
    return swing_variance(logs, min(cycle_variance(logs, cycle), cycle_variance(_off_line(logs, slope), cycle)))


def _cut_cycle_variance(count: int, width_ns: int) -> float:
    """Return the variance that just hides the step that half a cycle of the swing leaves in blocks of this width."""
    left_ratio = _SWING_RATIO * 0.5 * CYCLE_NS / width_ns
    return float((left_ratio / hidden_step(count, 1.0, share_ratio=1.0 / count)) ** 2)


def _slope(logs: Values) -> float:
    """Return the Theil-Sen slope per value: the median over all pairs, above 120 values over all pairs of their block means."""
    size = -(-len(logs) // _SLOPES_COUNT)
    means = logs[: len(logs) // size * size].reshape(-1, size).mean(axis=1)
    apart = np.subtract.outer(np.arange(len(means)), np.arange(len(means)))
    later = apart > 0
    return centre(np.subtract.outer(means, means)[later] / (apart[later] * size)) if later.any() else 0.0


def _off_line(logs: Values, slope: float) -> Values:
    along = slope * np.arange(len(logs))
    return np.asarray(logs - along - (logs - along).mean(), np.float64)
