"""Bounds of what lies inside a reading of the timer beside the work: its own cost, its ticks, a flush of the cache."""

from annotate.budget import Bound, Estimate, Group, Number

AROUND_NOTHING_S = 8e-6  # the most that a pair of CUDA events reads around nothing


def timer_bounds(rule: str, ratio: float | None, estimate: Estimate | None = None) -> tuple[Bound, ...]:
    """Return the bound of each number that times make; throughput is counted by the window's own length."""
    return tuple(
        Bound(number=number, rule=rule, group=Group.TIMER, ratio=ratio, estimate=estimate)
        for number in (Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)
    )
