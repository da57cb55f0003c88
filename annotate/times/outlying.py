"""Outliers among the iterations, and the pattern that shows their cause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.amount_words import ordinal
from annotate.evidence import Times, Timings, Values
from annotate.stats.robust import centre, row_medians, spread
from annotate.times.cold import cold
from annotate.times.durations import every_count, floor_s, readable

_SHORTEST_SLICE_S = 0.5e-3
_TENTHS_COUNT = 10
_NEAR_COUNT = 5  # iterations to either side of one


@dataclass(frozen=True)
class Outlying:
    """The outliers among the iterations: their indices, and the excess of each over the local median."""

    indices: npt.NDArray[np.intp]
    excess_s: Values
    took_s: Values  # times of all iterations except cold ones
    at_ns: Times
    usual_s: float  # the median of ``took_s``; 0 without times
    calls_count: int = 1

    @property
    def delays_s(self) -> Values:
        """Return the delay of each late entry as a whole: a time may be the mean of a batch of calls."""
        return self.excess_s[self.excess_s > 0] * self.calls_count

    @property
    def share_ratio(self) -> float:
        return len(self.indices) / len(self.took_s) if len(self.took_s) else 0.0

    @cached_property
    def cost_ratio(self) -> float:
        """Return the relative increase of the total time by late iterations."""
        late_s = float(self.excess_s[self.excess_s > 0].sum())
        return late_s / (float(self.took_s.sum()) - late_s) if late_s else 0.0

    def beside(self, step: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the outliers that have another outlier ``step`` iterations before or after them."""
        found = np.zeros(len(self.took_s) + 2 * step, np.bool_)
        found[self.indices + step] = True
        return found[self.indices] | found[self.indices + 2 * step]

    def pick(self, kept: npt.NDArray[np.bool_]) -> Outlying:
        """Return the outliers that a mask selects, among the same iterations."""
        return replace(self, indices=self.indices[kept], excess_s=self.excess_s[kept])


@dataclass(frozen=True, slots=True)
class Pattern:
    """A shape that outliers have in common, and the words for it."""

    name: str
    text: str


def outlying(
    timings: Timings,
    *,
    spreads: Annotated[float, "robust standard deviations about the local median"] = 5.0,
    least_ratio: Annotated[float, "share of the median; a smaller excess is never an outlier"] = 0.03,
) -> Outlying:
    """Return the warm iterations that lie farther than both limits from the median of their block."""
    warm = ~cold(timings.at_ns, timings.took_s)
    at_ns, took_s = timings.at_ns[warm], timings.took_s[warm]
    middle_s = centre(took_s) if len(took_s) else 0.0
    if len(took_s) < 2:
        return Outlying(np.empty(0, np.intp), np.empty(0), took_s, at_ns, middle_s, timings.calls_count)
    apart_s = took_s - _around(at_ns, took_s)
    limit_s = max(spreads * spread(apart_s, floor=floor_s(middle_s)), least_ratio * middle_s)
    indices = np.flatnonzero(np.abs(apart_s) > limit_s)
    return Outlying(indices, apart_s[indices], took_s, at_ns, middle_s, timings.calls_count)


def _around(at_ns: Times, took_s: Values) -> Values:
    """Return the median of each iteration's block."""
    span_s = float(at_ns[-1] - at_ns[0]) / 1e9
    # Half a second is short enough to follow the clock, and far longer than a burst of a neighbour.
    blocks = min(max(1, round(span_s / 0.5)), max(1, len(took_s) // 25))
    size = len(took_s) // blocks
    medians = row_medians(took_s[: blocks * size], size)
    around = np.empty(len(took_s))
    around[: blocks * size] = np.repeat(medians, size)
    around[blocks * size :] = medians[-1]
    return around


def time_slices(
    lying: Outlying,
    *,
    shortest_s: Annotated[float, "a GPU's time slice is about 2 ms; delays of the host are shorter"] = _SHORTEST_SLICE_S,
    longest_s: Annotated[float, "a wait for a CPU takes longer"] = 10e-3,
    alike_ratio: Annotated[float, "robust spread over median; the time slices of a GPU are nearly equal"] = 0.1,
    fewest_count: Annotated[int, "clean recordings hold none, so two equal ones are not chance"] = 2,
) -> Pattern | None:
    """Return the pattern of single iterations longer by the same few milliseconds, like another process's slices; else None."""
    entries_s = lying.excess_s * lying.calls_count
    found = (entries_s >= shortest_s) & (entries_s <= longest_s)
    excess_s = entries_s[found]
    if len(excess_s) < fewest_count:
        return None
    usual_s = centre(excess_s)
    # The lower limit makes the shortest of widely varying delays look alike: few delays may lie just below the limit.
    shorter_count = int(((entries_s >= shortest_s / 2) & (entries_s < shortest_s)).sum())
    alike = spread(excess_s) <= alike_ratio * usual_s and shorter_count <= len(excess_s) / 2
    # A run of slow iterations is another state of the GPU, not a time slice.
    if not (alike and _are_single(lying.indices[found])):
        return None
    return Pattern("time-slice", f"{len(excess_s)} of them {readable(usual_s)} longer each, like slices of another process")


def _are_single(indices: npt.NDArray[np.intp]) -> bool:
    """Return True if more than half of the distances between these indices exceed 1, or for fewer than two indices."""
    return len(indices) < 2 or float((np.diff(indices) == 1).mean()) < 0.5


def beyond_rhythm(
    lying: Outlying,
    *,
    beyond: Annotated[float, "multiple of the rhythm's usual excess beyond which an outlier is kept"] = 5.0,
) -> Outlying:
    """Return the outliers, except the ones at every Nth place, which the loop causes.

    Time slices of another process may fall in step with the loop: if there are such slices, outliers as long are kept.
    """
    nth = every_count(lying.indices)
    if nth is None:
        return lying
    in_step = lying.beside(nth)
    if time_slices(lying) is not None:
        in_step &= lying.excess_s * lying.calls_count < _SHORTEST_SLICE_S
        if not in_step.any():
            return lying
    return lying.pick(~in_step | (lying.excess_s > beyond * centre(lying.excess_s[in_step])))


def beyond_jitter(
    lying: Outlying,
    *,
    jitter_s: Annotated[float, "delays of launches are shorter, and time slices of another process longer"] = _SHORTEST_SLICE_S,
    uneven: Annotated[float, "chi-square of ten counts with 9 degrees of freedom, at 99 %"] = 21.7,
) -> Outlying:
    """Return the outliers without slightly late, single ones that are spread evenly over the tenths of the iterations.

    Such jitter is the same from first to last: any other window has it too.
    """
    delays_s = lying.excess_s * lying.calls_count
    slight = (delays_s > 0.0) & (delays_s < jitter_s)
    if not slight.any():
        return lying
    counts = np.diff(lying.indices[slight].searchsorted(np.linspace(0.0, len(lying.took_s), _TENTHS_COUNT + 1)))
    expected = counts.mean()
    is_even = float(np.square(counts - expected).sum()) <= uneven * expected
    return lying.pick(~slight) if is_even and _are_single(lying.indices[slight]) else lying


def beyond_swing(lying: Outlying, swing_ratio: float) -> Outlying:
    """Return the outliers without late ones that a controller's swing of the clock explains.

    The swing makes runs of iterations late.  An outlier belongs to a run if an adjacent one is an outlier, or if the median
    of the iterations around it is late by half as much.
    """
    at = lying.indices
    count, width = len(lying.took_s), min(2 * _NEAR_COUNT + 1, len(lying.took_s))
    near = np.clip(at - _NEAR_COUNT, 0, count - width)[:, np.newaxis] + np.arange(width)
    is_shared = row_medians(lying.took_s[near].ravel(), width) >= lying.took_s[at] - 0.5 * lying.excess_s
    in_run = is_shared | lying.beside(1)
    return lying.pick(~(in_run & (lying.excess_s > 0.0) & (lying.excess_s <= swing_ratio * lying.usual_s)))


def regular(lying: Outlying) -> Pattern | None:
    """Return the pattern of outliers at every Nth iteration, which the harness causes; else None."""
    nth = every_count(lying.indices)
    return Pattern("regular", f"most at every {ordinal(nth)} iteration, so the harness causes them") if nth else None


def late(
    lying: Outlying,
    waited: bool,  # noqa: FBT001 - a fact, not a mode
    *,
    longest_s: Annotated[float, "delay of a launch whose thread does not get a CPU"] = 10e-3,
) -> Pattern | None:
    """Return the pattern of launches that waited for a CPU, if threads waited or long delays prevail; else None."""
    excess_s = lying.delays_s
    if not len(excess_s) or not (waited or float(excess_s[excess_s >= longest_s].sum()) > 0.5 * float(excess_s.sum())):
        return None
    return Pattern("host", f"up to {readable(float(excess_s.max()))} late, like launches that waited for a CPU")


def periodic(
    lying: Outlying,
    *,
    alike_ratio: Annotated[float, "robust spread over median of the time between them"] = 0.1,
    fewest_count: Annotated[int, "groups of outliers; fewer show no rhythm"] = 5,
) -> Pattern | None:
    """Return the pattern of outlier groups at even intervals, such as those of a controller's cycle or a timer; else None."""
    at_ns = lying.at_ns[lying.indices]
    steps_s = np.diff(at_ns) / 1e9
    if not len(steps_s):
        return None
    # An outlier within 20 usual iterations of the one before belongs to the same group.
    begins = at_ns[np.concatenate([[True], steps_s > 20.0 * lying.usual_s * lying.calls_count])]
    apart_s = np.diff(begins) / 1e9
    if len(begins) < fewest_count:
        return None
    usual_s = centre(apart_s)
    if spread(apart_s) > alike_ratio * usual_s:
        return None
    return Pattern("periodic", f"in groups {readable(usual_s)} apart, like a controller's cycle or a timer")


def pattern(lying: Outlying, *, waited: bool) -> Pattern:
    """Return the first pattern that fits, from the most specific one to "scattered"."""
    return time_slices(lying) or late(lying, waited) or regular(lying) or periodic(lying) or Pattern("scattered", "scattered")
