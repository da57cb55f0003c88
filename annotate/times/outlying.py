"""Iterations that lie apart from their neighbours, and their pattern, which shows the cause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Timings, Values
from annotate.stats.robust import centre, row_medians, spread
from annotate.times.cold import cold
from annotate.times.durations import every_count, floor_s, readable

_SHORTEST_SLICE_S = 0.5e-3
_TENTHS_COUNT = 10


@dataclass(frozen=True, slots=True)
class Outlying:
    """The iterations that lie apart: their places in the series, and by how much each is longer than those around it."""

    indices: npt.NDArray[np.intp]
    excess_s: Values
    took_s: Values  # of all iterations, cold ones left out
    at_ns: Times
    calls_count: int = 1

    @property
    def delays_s(self) -> Values:
        """Return by how much longer each late entry is as a whole: a time may be the mean of a batch of calls."""
        return self.excess_s[self.excess_s > 0] * self.calls_count

    @property
    def share_ratio(self) -> float:
        return len(self.indices) / len(self.took_s) if len(self.took_s) else 0.0

    @property
    def cost_ratio(self) -> float:
        """Return by how much longer the late ones make all of them together."""
        late_s = float(self.excess_s[self.excess_s > 0].sum())
        return late_s / (float(self.took_s.sum()) - late_s) if late_s else 0.0

    def pick(self, kept: npt.NDArray[np.bool_]) -> Outlying:
        """Return some of those that lie apart, among the same iterations."""
        return replace(self, indices=self.indices[kept], excess_s=self.excess_s[kept])


@dataclass(frozen=True, slots=True)
class Pattern:
    """A shape that outliers have in common, and the words for it."""

    name: str
    text: str


def outlying(
    timings: Timings,
    *,
    spreads: Annotated[float, "robust standard deviations about the neighbours"] = 5.0,
    least_ratio: Annotated[float, "of the median: less is no outlier even among very even times"] = 0.03,
) -> Outlying:
    """The iterations more than this from the median of the half second they ran in; cold ones are another matter."""
    warm = ~cold(timings.at_ns, timings.took_s)
    at_ns, took_s = timings.at_ns[warm], timings.took_s[warm]
    if len(took_s) < 2:
        return Outlying(np.empty(0, np.intp), np.empty(0), took_s, at_ns, timings.calls_count)
    apart_s = took_s - _around(at_ns, took_s)
    middle_s = centre(took_s)
    limit_s = max(spreads * spread(apart_s, floor=floor_s(middle_s)), least_ratio * middle_s)
    indices = np.flatnonzero(np.abs(apart_s) > limit_s)
    return Outlying(indices, apart_s[indices], took_s, at_ns, timings.calls_count)


def _around(at_ns: Times, took_s: Values) -> Values:
    """The median of the block each iteration is in."""
    span_s = float(at_ns[-1] - at_ns[0]) / 1e9
    # A clock that moves over half a second makes nobody an outlier, and a burst of a neighbour is far shorter.
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
    shortest_s: Annotated[float, "a GPU's time slice is about 2 ms; hiccups of the host are shorter"] = _SHORTEST_SLICE_S,
    longest_s: Annotated[float, "a processor's turn takes longer"] = 10e-3,
    alike_ratio: Annotated[float, "robust spread over median; slices recorded on an H200 differed by 1 %"] = 0.1,
    fewest_count: Annotated[int, "clean recordings hold none at all, so that two alike are no chance"] = 2,
) -> Pattern | None:
    """Single iterations that are longer by the same few milliseconds: another process had a turn."""
    entries_s = lying.excess_s * lying.calls_count
    found = (entries_s >= shortest_s) & (entries_s <= longest_s)
    excess_s = entries_s[found]
    if len(excess_s) < fewest_count:
        return None
    usual_s = centre(excess_s)
    # What a wide range leaves beyond the shortest turn is alike by its edge: the shorter half must hold less.
    shorter_count = int(((entries_s >= shortest_s / 2) & (entries_s < shortest_s)).sum())
    alike = spread(excess_s) <= alike_ratio * usual_s and shorter_count <= len(excess_s) / 2
    # A stretch of slow ones is another state of the GPU, not a turn.
    if not (alike and _are_single(lying.indices[found])):
        return None
    return Pattern("time-slice", f"{len(excess_s)} of them {readable(usual_s)} longer each, as by turns of another process")


def _are_single(indices: npt.NDArray[np.intp]) -> bool:
    """Return whether most of them have no direct neighbour among themselves."""
    return len(indices) < 2 or float((np.diff(indices) == 1).mean()) < 0.5


def beyond_rhythm(
    lying: Outlying,
    *,
    beyond: Annotated[float, "as of gaps: so many times the usual excess of the rhythm stands out of it"] = 5.0,
) -> Outlying:
    """Return those that lie apart without the ones at every Nth place, which are the loop's own; all where there is no rhythm.

    Turns of another process may come in step with the loop: as long as those, none is the loop's own.
    """
    nth = every_count(lying.indices)
    if nth is None:
        return lying
    at = lying.indices
    in_step = np.isin(at + nth, at) | np.isin(at - nth, at)
    if time_slices(lying) is not None:
        in_step &= lying.excess_s * lying.calls_count < _SHORTEST_SLICE_S
        if not in_step.any():
            return lying
    return lying.pick(~in_step | (lying.excess_s > beyond * centre(lying.excess_s[in_step])))


def beyond_jitter(
    lying: Outlying,
    *,
    jitter_s: Annotated[float, "hiccups of launches are shorter, and turns of another process longer"] = _SHORTEST_SLICE_S,
    uneven: Annotated[float, "chi-square of ten counts with 9 degrees of freedom, at 99 %"] = 21.7,
) -> Outlying:
    """Return those that lie apart without the slightly late ones that come singly, as often in each tenth of the window.

    These are the same from first to last: any other window has them too.
    """
    delays_s = lying.excess_s * lying.calls_count
    slight = (delays_s > 0.0) & (delays_s < jitter_s)
    if not slight.any():
        return lying
    counts = np.histogram(lying.indices[slight], bins=_TENTHS_COUNT, range=(0, len(lying.took_s)))[0]
    expected = counts.mean()
    is_even = float(np.square(counts - expected).sum()) <= uneven * expected
    return lying.pick(~slight) if is_even and _are_single(lying.indices[slight]) else lying


def beyond_swing(lying: Outlying, swing_ratio: float) -> Outlying:
    """Return those that lie apart without the late ones side by side that a controller's swing of the clock explains."""
    at = lying.indices
    beside = np.isin(at + 1, at) | np.isin(at - 1, at)
    return lying.pick(~(beside & (lying.excess_s > 0.0) & (lying.excess_s <= swing_ratio * centre(lying.took_s))))


def regular(lying: Outlying) -> Pattern | None:
    """Every Nth iteration: the harness does something there."""
    nth = every_count(lying.indices)
    return Pattern("regular", f"most at every {nth}th iteration, so by the harness's own doing") if nth else None


def late(
    lying: Outlying,
    waited: bool,  # noqa: FBT001 - a fact, not a mode
    *,
    longest_s: Annotated[float, "what a launch loses when its thread does not get a processor"] = 10e-3,
) -> Pattern | None:
    """Long delays of many lengths: launches that waited for a processor."""
    excess_s = lying.delays_s
    if not len(excess_s) or not (waited or float(excess_s[excess_s >= longest_s].sum()) > 0.5 * float(excess_s.sum())):
        return None
    return Pattern("host", f"up to {readable(float(excess_s.max()))} late, as launches that waited for a processor")


def periodic(
    lying: Outlying,
    *,
    alike_ratio: Annotated[float, "robust spread over median of the time between them"] = 0.1,
    fewest_count: Annotated[int, "groups of outliers; fewer show no rhythm"] = 5,
) -> Pattern | None:
    """Groups of outliers at even distances of time: something comes back, such as a controller's cycle or a timer."""
    at_ns = lying.at_ns[lying.indices]
    steps_s = np.diff(at_ns) / 1e9
    if not len(steps_s):
        return None
    # What follows within a few iterations belongs to the same group.
    begins = at_ns[np.concatenate([[True], steps_s > 20.0 * centre(lying.took_s) * lying.calls_count])]
    apart_s = np.diff(begins) / 1e9
    if len(begins) < fewest_count:
        return None
    usual_s = centre(apart_s)
    if spread(apart_s) > alike_ratio * usual_s:
        return None
    return Pattern("periodic", f"in groups {readable(usual_s)} apart, as by a controller's cycle or a timer")


def pattern(lying: Outlying, *, waited: bool) -> Pattern:
    """The first that fits, from the most telling to none."""
    return time_slices(lying) or late(lying, waited) or regular(lying) or periodic(lying) or Pattern("scattered", "scattered")
