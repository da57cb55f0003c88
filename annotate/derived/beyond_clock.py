"""The variation of raw times beyond that of their clock, under a power cap.

The controller swings the clock, and the times of a kernel follow it at most in proportion.  A change that is too fast or too
regular for levels still makes the times vary more than the clock.
"""

from typing import Annotated

import numpy as np

from annotate.budget import Bound, Group, Number
from annotate.derived.clock_blocks import ClockBlocks, entry_blocks
from annotate.derived.time_levels import TimeLevels
from annotate.evidence import Timings
from annotate.stats.robust import spread

_TAIL_SD = 1.4  # the mean of the outer fifth of normal values
_SURE_SD = 3.0
_FEWEST_COUNT = 8  # blocks: the deviation of fewer is too uncertain
_NUMBERS = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)


def beyond_clock_ratio(
    found: TimeLevels,
    blocks: ClockBlocks | None,
    timings: Timings,
    *,
    least_ratio: Annotated[float, "at most 0.0125 in 18 recorded clean capped windows without stamps"] = 0.02,
) -> float:
    """Return the standard deviation of the blocks' times beyond that of the clock; 0 if small, unknown or at one clock.

    Calls that vary by themselves, such as steps of unequal batches, leave a part of their noise in each block's mean.  That
    part does not count.
    """
    if found.is_at_one_clock or blocks is None or not blocks.swings or blocks.covered_ratio < 0.5:
        return 0.0
    logs = np.log(blocks.mhz[blocks.known])
    if min(len(logs), len(found.took_s)) < _FEWEST_COUNT:
        return 0.0
    beyond = float(np.log(found.took_s).var() - logs.var()) - _noise_variance(found, timings)
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


def beyond_clock_bounds(ratio: float, rule: str) -> tuple[Bound, ...]:
    """Return a bound for each raw number, without an estimate: the distance of the outer fifth from the mean; none for 0."""
    if not ratio:
        return ()
    return tuple(Bound(number=each, rule=rule, group=Group.CLOCK, ratio=_TAIL_SD * ratio) for each in _NUMBERS)
