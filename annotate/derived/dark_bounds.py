"""Bounds of dark time: the largest excursion that can hide at each instant of a window, over all proofs."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np

from annotate.budget import Bound, Group, Number, Replaces
from annotate.derived.clock_blocks import ClockBlocks
from annotate.derived.dark_time import DarkInterval, clock_intervals, list_intervals, power_intervals
from annotate.evidence import Evidence
from annotate.evidence.asked import kept

_DARK_RATIO = 0.5  # the specification: from this share on, the dark time of a proof gives no bounds
_NEIGHBOUR_RATIO, _NEIGHBOUR_AT_CLOCK_RATIO = 1.0, 0.03  # the most that a neighbour takes; at one clock 2.8 % was measured


def dark_clock(
    evidence: Evidence,
    blocks: ClockBlocks | None,
    *,
    longest_s: Annotated[float, "two refreshes of the driver's clock and a margin"] = 0.25,
) -> tuple[DarkInterval, ...]:
    """Return the silences of the clock, for proof 3: those of the driver's clock without the stamped blocks."""
    silent = clock_intervals(evidence, longest_s=longest_s)
    if blocks is None or not blocks.stamped.any():
        return silent
    begins_ns = blocks.at_ns[~blocks.stamped]
    found: list[DarkInterval] = []
    for each in silent:
        firsts_ns = np.maximum(begins_ns, each.begin_ns)
        lasts_ns = np.minimum(begins_ns + blocks.width_ns, each.end_ns)
        dark = firsts_ns < lasts_ns
        spans_ns = zip(firsts_ns[dark].tolist(), lasts_ns[dark].tolist(), strict=True)
        found += [DarkInterval(*span_ns, each.excursion_ratio, each.bridged_by) for span_ns in spans_ns]
    return tuple(found)


@kept
def dark_power(evidence: Evidence, idle_w: float | None) -> tuple[DarkInterval, ...]:
    """Return the silences of the dense power record, for proof 1 of a window without known gaps."""
    return power_intervals(evidence, idle_w=idle_w)


def dark_lists(
    evidence: Evidence,
    *,
    longest_s: Annotated[float, "a neighbour fits into a longer silence of a list that is read five times a second"] = 0.5,
) -> tuple[DarkInterval, ...]:
    """Return the silences of the process lists, for proof 4."""
    return list_intervals(evidence, _NEIGHBOUR_RATIO, longest_s=longest_s)


def dark_bounds(
    length_ns: int,
    *,
    clock: Sequence[DarkInterval] = (),
    power: Sequence[DarkInterval] = (),
    lists: Sequence[DarkInterval] = (),
    has_gaps: bool = False,
    rule: str = "dark-time",
) -> tuple[Bound, ...]:
    """Return the bounds of ``dark-time``, none without silences and gaps; simultaneous silences of several proofs count once.

    ``has_gaps`` means that gaps between entries show the idle time.  The power record is then not needed, and the bounds
    replace those of its silence.  A proof that is dark for half of the window or longer gives no bounds.
    """
    clock, power, lists = (each if _length_ns(each) < _DARK_RATIO * length_ns else () for each in (clock, power, lists))
    mild = [DarkInterval(each.begin_ns, each.end_ns, _NEIGHBOUR_AT_CLOCK_RATIO) for each in lists]
    timed = (*clock, *lists)
    hidden = {
        Number.THROUGHPUT: timed if has_gaps else (*timed, *power),
        Number.MEAN: timed,
        Number.MEDIAN: timed,
        Number.MEDIAN_AT_CLOCK: mild,
    }
    if not any(hidden.values()) and not has_gaps:
        return ()
    return tuple(
        Bound(
            number=number,
            rule=rule,
            group=Group.DARK,
            ratio=largest_ratio(stretches, length_ns),
            # Neither times nor stamps replace a process list.
            seen_ratio=largest_ratio(mild if number is Number.MEDIAN_AT_CLOCK else lists, length_ns),
            replaces=Replaces.UNRESOLVED if has_gaps else Replaces.NOTHING,
        )
        for number, stretches in hidden.items()
    )


def largest_ratio(stretches: Iterable[DarkInterval], length_ns: int) -> float:
    """Return the mean over the window of the largest excursion at each instant."""
    each = tuple(stretches)
    if not each or length_ns <= 0:
        return 0.0
    begins, ends = (np.array([getattr(one, side) for one in each], np.int64) for side in ("begin_ns", "end_ns"))
    ratios = np.array([one.excursion_ratio for one in each])
    edges = np.unique(np.concatenate([begins, ends]))
    held = (begins[:, np.newaxis] <= edges[:-1]) & (ends[:, np.newaxis] >= edges[1:])
    largest = np.where(held, ratios[:, np.newaxis], 0.0).max(axis=0)
    return float((largest * np.diff(edges)).sum()) / length_ns


def _length_ns(stretches: Sequence[DarkInterval]) -> int:
    return sum(each.length_ns for each in stretches)
