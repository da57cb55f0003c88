"""Two speeds that alternate within a window, and the distance of median and mean from either."""

from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.budget import Bound, Group, Number
from annotate.evidence import Values
from annotate.stats.robust import centre
from annotate.times.at_one_clock import OneClockTimes
from annotate.times.durations import every_count
from annotate.times.modes import two_modes

_LEAST_RATIO = 0.2  # the specification: a level counts if it holds a fifth


def mode_bounds(
    rule: str,
    times: OneClockTimes,
    *,
    separation_ratio: Annotated[float, "memory placement alone separates groups by up to 2 %"] = 0.02,
    depth_ratio: Annotated[float, "density in the valley over density at the lower peak"] = 0.25,
    p: Annotated[float, "probability of such a valley by chance"] = 0.01,
    centre_ratio: Annotated[float, "a smaller group leaves the median within the larger one"] = 1 / 3,
    swing_ratio: Annotated[float, "a clean GEMM separates by 2.6 %, a controller's swing by 7 %: no bound of the mean"] = 0.07,
) -> tuple[Bound, ...]:
    """Return the bounds of times in two groups; empty without two groups or if every Nth entry is slow.

    If the smaller group holds more than a third, the bound of the medians is half of the separation.  Else it is the distance
    of the median from the larger group's median.  Groups more than ``swing_ratio`` apart also give bounds of mean and rate.
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
    medians = tuple(Bound(number=each, rule=rule, group=group, ratio=ratio) for each in numbers)
    return (*medians, *_mean_bounds(rule, times.took_s, slow, group)) if modes.separation_ratio > swing_ratio else medians


def _mean_bounds(rule: str, took_s: Values, slow: npt.NDArray[np.bool_], group: Group) -> tuple[Bound, ...]:
    """Return the bounds of mean and rate: the largest deviation from one group's mean and rate.

    A group counts if it holds a fifth of the entries or of their time.  If the slow group holds less, return no bounds:
    another rule bounds slow outliers.
    """
    slow_ratio = max(float(slow.mean()), float(took_s[slow].sum() / took_s.sum()))
    if slow_ratio < _LEAST_RATIO:
        return ()
    fast_ratio = max(float((~slow).mean()), float(took_s[~slow].sum() / took_s.sum()))
    groups = [took_s[slow], *([took_s[~slow]] if fast_ratio >= _LEAST_RATIO else [])]
    mean_s = float(took_s.mean())
    means = [mean_s / float(each.mean()) - 1.0 for each in groups]
    largest = {Number.MEAN: max(map(abs, means)), Number.THROUGHPUT: max(abs(1.0 / (1.0 + each) - 1.0) for each in means)}
    return tuple(Bound(number=number, rule=rule, group=group, ratio=ratio) for number, ratio in largest.items())
