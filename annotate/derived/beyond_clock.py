"""The variation of times between blocks, beyond that of their clock, their levels and the noise of single calls.

A change that is too fast or too regular for levels is a part of the noise between blocks, and enlarges that noise.  Under a
power cap the controller swings the clock, and the times of a kernel follow the clock at most in proportion.  Times at one
clock, and times of a GPU without a cap, have no such swing.
"""

from dataclasses import replace
from typing import Annotated

import numpy as np

from annotate.budget import Bound, Group, Number
from annotate.derived.clock_blocks import CYCLE_NS, ClockBlocks, entry_blocks
from annotate.derived.held import may_be_capped
from annotate.derived.load_time import excess_of
from annotate.derived.time_levels import TimeLevels
from annotate.evidence import Evidence, Timings
from annotate.stats.robust import quantiles, spread
from annotate.times.at_one_clock import OneClockTimes, loosely_at_one_clock

_TAIL_SD = 1.4  # the mean of the outer fifth of normal values
_OUTER, _OUTER_SD = (0.1, 0.5, 0.9), 1.2816  # the medians of the outer fifths, in standard deviations of normal values
_SURE_SD = 3.0
_GROUP_COUNT, _CUT_COUNT = 10, 2  # entries of a group, and those cut from its mean at either end
_LEAST_CYCLES = 3
_FEWEST_COUNT = 8  # blocks: the deviation of fewer is too uncertain
_NUMBERS = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)


def at_drivers_clock(timings: Timings, blocks: ClockBlocks | None) -> Timings | None:
    """Return capped times without stamps, converted to one value of the driver's clock.

    Return None for stamped times, if the cap did not hold most of the time, if less than half of the window has a clock, or
    below three cycles of the controller, which the conversion could fit by chance.  The driver's clock is a mean over a
    refresh, so a part of the swing remains.
    """
    if (
        blocks is None
        or timings.sm_clock_mhz is not None
        or not blocks.swings
        or blocks.covered_ratio < 0.5
        or len(blocks.mhz) * blocks.width_ns < _LEAST_CYCLES * CYCLE_NS
    ):
        return None
    middle_ns = timings.at_ns + timings.took_s * timings.calls_count * 5e8
    clock_mhz = np.interp(middle_ns, (blocks.at_ns + blocks.width_ns // 2)[blocks.known], blocks.mhz[blocks.known])
    times = loosely_at_one_clock(replace(timings, sm_clock_mhz=clock_mhz))
    return replace(timings, at_ns=times.at_ns, took_s=times.took_s) if times is not None else None


def beyond_clock_ratio(
    found: TimeLevels | None,
    blocks: ClockBlocks | None,
    timings: Timings,
    *,
    least_ratio: Annotated[float, "at most 0.0125 in 18 recorded clean capped windows without stamps"] = 0.02,
) -> float:
    """Return the distance of the outer fifth of the blocks' times beyond the clock's; 0 if small or at one clock.

    Return 0 too if no cap held most of the time, if over half of the window has no clock, or for under eight blocks.
    Calls that vary by themselves, such as steps of unequal batches, leave a part of their noise in each block's mean.  That
    part does not count.
    """
    if found is None or found.is_at_one_clock or blocks is None or not blocks.swings or blocks.covered_ratio < 0.5:
        return 0.0
    if min(len(blocks.logs), len(found.took_s)) < _FEWEST_COUNT:
        return 0.0
    beyond = float(np.log(found.took_s).var() - blocks.logs.var()) - _noise_variance(found, timings)
    return _TAIL_SD * beyond**0.5 if beyond > least_ratio**2 else 0.0


def beyond_levels_ratio(
    found: TimeLevels,
    evidence: Evidence,
    times: OneClockTimes,
    calls_count: int,
    *,
    least_ratio: Annotated[float, "at most 0.004 in 190 recorded valid windows of H200s"] = 0.006,
) -> float:
    """Return the distance of the outer fifths of times from their levels at a steady clock; 0 if small or along a line.

    Return 0 for boards that were not measured, at a clock that may swing, and for few times.

    The times are trimmed means of ten entries each.  At a steady clock only the noise of single entries varies these means.
    More variation is a change of the work that recurs faster than levels resolve.
    """
    is_measured = excess_of(evidence.device.name if evidence.device else None) is not None
    is_still = is_measured and (found.is_at_one_clock or not may_be_capped(evidence))
    groups_count = len(times.took_s) // _GROUP_COUNT
    if not is_still or found.is_line or min(groups_count, len(found.took_s)) < _FEWEST_COUNT:
        return 0.0
    place = entry_blocks(Timings(times.at_ns, times.took_s, None, calls_count), found.at_ns)
    beside = (np.log(times.took_s) - (np.log(found.took_s) - found.beside)[place])[: groups_count * _GROUP_COUNT]
    ordered = np.sort(beside.reshape(groups_count, _GROUP_COUNT), axis=1)  # late entries belong to another rule
    low, middle, high = quantiles(ordered[:, _CUT_COUNT:-_CUT_COUNT].mean(axis=1), *_OUTER)
    noise = 0.5 * float(np.square(np.diff(beside)).mean()) / _GROUP_COUNT
    beyond = max(middle - low, high - middle) ** 2 - (_SURE_SD * _OUTER_SD) ** 2 * noise
    return beyond**0.5 if beyond > least_ratio**2 else 0.0


def _noise_variance(found: TimeLevels, timings: Timings) -> float:
    """Return the largest variance of the blocks' logarithms that the noise of single entries leaves."""
    within = np.log(timings.took_s / found.took_s[entry_blocks(timings, found.at_ns)])
    # Late entries belong to another rule.
    most = _SURE_SD * spread(within)
    count = len(found.took_s)
    entry = float(np.square(np.clip(within, -most, most)).sum()) / max(1, len(within) - count)
    # The variance of n values is itself uncertain by the root of 2 / (n - 1).
    uncertain = 1.0 + _SURE_SD * float((2.0 / (count - 1)) ** 0.5)
    return uncertain * entry * float((1.0 / found.counts).mean())


def beyond_bounds(ratio: float, rule: str, levels: tuple[Bound, ...], *, is_at_one_clock: bool = False) -> tuple[Bound, ...]:
    """Return bounds of at least this size for each number: those of the levels, widened, else bounds without an estimate."""
    if levels:
        return tuple(replace(each, ratio=max(each.size_ratio, ratio), seen_ratio=None) for each in levels)
    group, numbers = (Group.TIMES, (*_NUMBERS, Number.MEDIAN_AT_CLOCK)) if is_at_one_clock else (Group.CLOCK, _NUMBERS)
    return tuple(Bound(number=each, rule=rule, group=group, ratio=ratio) for each in numbers)
