"""Two speeds that alternate within a window, and how far its median lies from either of them."""

from typing import Annotated

import numpy as np

from annotate.budget import Bound, Group, Number
from annotate.stats.robust import centre
from annotate.times.at_one_clock import OneClockTimes
from annotate.times.durations import every_count
from annotate.times.modes import two_modes


def mode_bounds(
    rule: str,
    times: OneClockTimes,
    *,
    separation_ratio: Annotated[float, "less than 2 % apart is within what placement does"] = 0.02,
    depth_ratio: Annotated[float, "density between over density at the lower peak"] = 0.25,
    p: Annotated[float, "that there is no valley"] = 0.01,
    centre_ratio: Annotated[float, "a smaller group leaves the median within the larger one"] = 1 / 3,
) -> tuple[Bound, ...]:
    """Return half of the separation for the medians, where the smaller group holds a third; nothing for every Nth entry.

    Below a third it is what the smaller group moves the median within the larger one.  At one clock there are no groups
    that the clock explains.
    """
    modes = two_modes(times.took_s)
    if modes is None or modes.separation_ratio <= separation_ratio or modes.depth_ratio > depth_ratio or modes.p >= p:
        return ()
    slow = times.took_s > modes.split_s
    if every_count(np.flatnonzero(slow)) is not None:
        return ()
    most_s = times.took_s[slow if modes.slow_ratio > 0.5 else ~slow]
    moved_ratio = abs(centre(times.took_s) / centre(most_s) - 1.0)
    ratio = modes.separation_ratio / 2.0 if modes.minor_ratio > centre_ratio else moved_ratio
    group = Group.TIMES if times.is_at_one_clock else Group.CLOCK
    numbers = (Number.MEDIAN, Number.MEDIAN_AT_CLOCK) if times.is_at_one_clock else (Number.MEDIAN,)
    return tuple(Bound(number=each, rule=rule, group=group, ratio=ratio) for each in numbers)
