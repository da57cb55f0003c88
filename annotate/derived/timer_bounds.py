"""Bounds for parts of a timer reading that are not the work: the timer's cost, its ticks, a cache flush."""

from annotate.budget import Bound, Estimate, Group, Number

AROUND_NOTHING_S = 8e-6  # the most that a pair of CUDA events reads around nothing


def timer_bounds(rule: str, ratio: float | None, estimate: Estimate | None = None) -> tuple[Bound, ...]:
    """Return the bound of each number that depends on timer readings: of all numbers except throughput."""
    return tuple(
        Bound(number=number, rule=rule, group=Group.TIMER, ratio=ratio, estimate=estimate)
        for number in (Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)
    )
