"""The variation of raw times beyond that of their clock, under a power cap.

The controller swings the clock, and the times of a kernel follow it at most in proportion.  A change that is too fast or too
regular for levels can hide in that swing, but not in its size.
"""

from typing import Annotated

import numpy as np

from annotate.budget import Bound, Group, Number
from annotate.derived.clock_blocks import ClockBlocks
from annotate.derived.time_levels import TimeLevels

_TAIL_SD = 1.4  # the mean of the outer fifth of normal values
_FEWEST_COUNT = 8  # blocks: the deviation of fewer is too uncertain
_NUMBERS = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)


def beyond_clock_ratio(
    found: TimeLevels,
    blocks: ClockBlocks | None,
    *,
    least_ratio: Annotated[float, "at most 0.0125 in 18 recorded clean capped windows without stamps"] = 0.02,
) -> float:
    """Return the standard deviation of the blocks' times beyond that of the clock; 0 if small, unknown or at one clock."""
    if found.is_at_one_clock or blocks is None or not blocks.swings or blocks.covered_ratio < 0.5:
        return 0.0
    logs = np.log(blocks.mhz[blocks.known])
    if min(len(logs), len(found.took_s)) < _FEWEST_COUNT:
        return 0.0
    beyond = float(np.log(found.took_s).var() - logs.var())
    return beyond**0.5 if beyond > least_ratio**2 else 0.0


def beyond_clock_bounds(ratio: float, rule: str) -> tuple[Bound, ...]:
    """Return the distance of each number from the outer fifth of such times, without an estimate; none for 0."""
    if not ratio:
        return ()
    return tuple(Bound(number=each, rule=rule, group=Group.CLOCK, ratio=_TAIL_SD * ratio) for each in _NUMBERS)
