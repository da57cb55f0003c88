"""Levels of the work's rate by outside witnesses: power of uncapped work, power dips of capped work, and memory traffic.

Power and traffic follow the calls per second, whatever slows the calls.  Causes are a clock that the driver's gauge does not
show, a GPU that spins while it waits, and memory that is refreshed more often.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.budget import Bound, Group, Number, Replaces
from annotate.derived.busy import utilization_ratio
from annotate.derived.clock_blocks import CYCLE_NS
from annotate.derived.held import power_cap
from annotate.derived.idle_gaps import SAMPLE_NS, IdleGaps
from annotate.evidence import Column, Evidence, Times, Values
from annotate.evidence.asked import kept
from annotate.stats.change_points import find_levels
from annotate.stats.long_run import cycle_variance

CLOCK_POWER = 3.0  # power falls at most with the cube of the clock: a changed clock explains no more
_BLOCK_NS = 100_000_000  # five samples of the power record
_MOST_BLOCKS = 600
_FEWEST_BLOCKS = 2  # fewest blocks of a level inside the window: a single block may hold a change
_LEAST_RATIO = 0.2  # the specification: a level that holds a fifth could have been the window's own
_STEADY_RATIO = 1e-3  # the least noise of the logarithm of power
_REST_RATIO = 1.0 / 6.0  # rest as a part of the limit: 117 of 700 W with a context on an H200
_LEAST_W = 1.0
_ALIKE_RATIO = 0.01
_LEAST_DRAWN_RATIO = 0.5  # power above rest, over rest: below, rest itself drifts by more than the rule's limit
_DRIFT_RATIO = 0.01  # of rest: 0.1 % with copies from the host, 0.8 % with a GEMV
_GPM_LAG_NS = 126_000_000  # a GPM mean describes a time up to this much earlier
_LEAST_TRAFFIC_RATIO = 0.02  # least part of the bandwidth: less traffic is too coarse to judge


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLevels:
    """The largest deviation of the window's mean rate from one of its levels, and its witness."""

    bound_ratio: float
    by: str
    levels_count: int
    apart_ratio: float  # the highest level over the lowest, minus 1
    span_ns: tuple[int, int] | None
    group: Group  # power shows the rate at work, as times do; traffic shows the whole number, with idle time

    def bounds(self, rule: str) -> tuple[Bound, ...]:
        """Return the bound of throughput, without an estimate: easier data lowers power and traffic as fewer calls do."""
        return (Bound(number=Number.THROUGHPUT, rule=rule, group=self.group, ratio=self.bound_ratio, seen_ratio=0.0),)


def no_levels(rule: str) -> tuple[Bound, ...]:
    """Return zero bounds that replace those of the witnesses: times that the books confirm show the rate better."""
    return tuple(
        Bound(number=Number.THROUGHPUT, rule=rule, group=group, ratio=0.0, replaces=Replaces.UNRESOLVED)
        for group in (Group.TIMES, Group.WHOLE)
    )


def _idle_mask(at_ns: Times, dips: IdleGaps | None) -> npt.NDArray[np.bool_]:
    """Return a mask of the samples in irregular stretches that are mostly idle: other rules report those."""
    mask = np.zeros(len(at_ns), np.bool_)
    if dips is None:
        return mask
    idle = dips.irregular & (dips.idle_s * 1e9 >= 0.5 * (dips.end_ns - dips.begin_ns))
    for begin_ns, end_ns in zip(dips.begin_ns[idle].tolist(), dips.end_ns[idle].tolist(), strict=True):
        mask |= (at_ns > begin_ns) & (at_ns <= end_ns)
    return mask


@kept
def power_levels(
    evidence: Evidence,
    began_ns: int,
    dips: IdleGaps | None,
    idle_w: float | None,
    *,
    capped_ratio: Annotated[float, "the specification: a window capped for at most this share is its own reference"] = 0.02,
) -> WorkLevels | None:
    """Return the levels of the driver's 20 ms power above rest, or None if capped, not busy throughout, or not known.

    Near rest, None too for levels that a drift of rest explains.  The load right before the window, since ``began_ns``, is
    included: a level of the window may have begun before it.
    """
    window, cap, limit_w = evidence.window, power_cap(evidence), evidence.device.power_limit_w if evidence.device else None
    rest_w = idle_w if idle_w is not None else _REST_RATIO * limit_w if limit_w else None
    if cap is None or cap.ratio > capped_ratio or rest_w is None or window.length_ns <= 0 or not _is_fed(evidence):
        return None
    width_ns = max(_BLOCK_NS, window.length_ns // _MOST_BLOCKS)
    lead_count = min(max(0, window.begin_ns - began_ns), int(_LEAST_RATIO * window.length_ns)) // width_ns
    begin_ns = window.begin_ns - lead_count * width_ns
    count = lead_count + window.length_ns // width_ns
    dense = evidence.trace.dense_power
    at_ns, power_w = _blocks(dense.where(~_idle_mask(dense.at_ns, dips)), begin_ns, width_ns, int(count))
    inside = at_ns >= window.begin_ns
    if 2 * int(inside.sum()) * width_ns < window.length_ns:
        return None
    drawn_w = np.maximum(power_w - rest_w, _LEAST_W)
    logs = np.log(drawn_w)
    levels = find_levels(logs, max(cycle_variance(logs, round(CYCLE_NS / width_ns)), _STEADY_RATIO**2))
    kept = [each.places for each in levels if len(each.places) >= _LEAST_RATIO * inside.sum()]
    kept = [places for places in kept if int(inside[places].sum()) >= _FEWEST_BLOCKS]
    mean_w = float(drawn_w[inside].mean())
    levels_w = np.array([drawn_w[places].mean() for places in kept])
    if not kept or (mean_w < _LEAST_DRAWN_RATIO * rest_w and np.abs(mean_w - levels_w).max() < _DRIFT_RATIO * rest_w):
        return None
    rarer = min((levels[0].places, levels[-1].places), key=len)
    return WorkLevels(
        bound_ratio=float(np.abs(mean_w / levels_w - 1.0).max()),
        by="power",
        group=Group.TIMES,
        levels_count=len(levels),
        apart_ratio=float(np.exp(levels[-1].mean - levels[0].mean)) - 1.0,
        span_ns=(int(at_ns[rarer[0]]), int(at_ns[rarer[-1]]) + width_ns) if len(levels) > 1 else None,
    )


@kept
def capped_dips(
    evidence: Evidence,
    dips: IdleGaps | None,
    idle_w: float | None,
    *,
    capped_ratio: Annotated[float, "the specification: power is at its limit in a window capped for more than this"] = 0.02,
    deep_ratio: Annotated[float, "blocks of 100 ms of clean capped windows fell by 11 % at most"] = 0.15,
    sample_ratio: Annotated[float, "a capped clock's controller alone changes single samples by a quarter"] = 0.25,
) -> WorkLevels | None:
    """Return the share of a capped window in which power fell far below its median.

    Return None if the window is not known to be capped, for dips in a rhythm, for fewer than half of the power samples,
    without a known idle power, or if the clock fell too.

    A GPU that idles or spins draws less power, and so does one with easier data: all of that time may be lost.
    """
    window, cap, dense = evidence.window, power_cap(evidence), evidence.trace.dense_power
    inside = (dense.at_ns > window.begin_ns) & (dense.at_ns <= window.end_ns)
    power_w, at_ns = dense.values[inside], dense.at_ns[inside]
    if cap is None or cap.ratio <= capped_ratio or dips is None or dips.usual_s > 0.0 or idle_w is None:
        return None
    if 2 * len(power_w) * SAMPLE_NS < window.length_ns:
        return None
    usual_w = float(np.median(power_w))
    fallen = (usual_w - power_w) / max(usual_w - idle_w, _LEAST_W)
    place = (at_ns - window.begin_ns - 1) // _BLOCK_NS
    means = np.bincount(place, fallen) / np.maximum(np.bincount(place), 1)
    deep = means > deep_ratio
    near = deep | np.append(deep[1:], False) | np.insert(deep[:-1], 0, False)
    lost = (fallen > sample_ratio) & near[place] & ~_idle_mask(at_ns, dips)
    lost_at_ns = at_ns[lost]
    if _is_slower(evidence, lost_at_ns, at_ns[~lost]):
        return None
    return WorkLevels(
        bound_ratio=min(1.0, int(lost.sum()) * SAMPLE_NS / window.length_ns),
        by="power",
        group=Group.TIMES,
        levels_count=2 if lost.any() else 1,
        apart_ratio=usual_w / max(float(power_w[lost].mean()), _LEAST_W) - 1.0 if lost.any() else 0.0,
        span_ns=(int(lost_at_ns[0]) - SAMPLE_NS, int(lost_at_ns[-1])) if lost.any() else None,
    )


def _is_slower(
    evidence: Evidence,
    lost_at_ns: Times,
    other_at_ns: Times,
    *,
    lower_ratio: Annotated[float, "a step of the clock of an H200 is 0.8 %"] = 0.01,
) -> bool:
    """Return whether the clock fell with power, which explains the dip: under a cap, a lower demand raises the clock."""
    lag_ns = evidence.trace.refresh_of_ns("sm_clock_mhz") * 3 // 4
    lost_mhz, other_mhz = (evidence.trace.at("sm_clock_mhz", each + lag_ns) for each in (lost_at_ns, other_at_ns))
    if not np.isfinite(lost_mhz).any() or not np.isfinite(other_mhz).any():
        return False
    return float(np.nanmean(lost_mhz)) < (1.0 - lower_ratio) * float(np.nanmean(other_mhz))


def _blocks(dense: Column, begin_ns: int, width_ns: int, count: int) -> tuple[Times, Values]:
    """Return the start time and mean power of each block with samples.  A sample covers the 20 ms before it."""
    place = (dense.at_ns - begin_ns - 1) // width_ns
    kept = (place >= 0) & (place < count)
    counts = np.bincount(place[kept], minlength=count)
    sums = np.bincount(place[kept], dense.values[kept], count)
    known = np.flatnonzero(counts > 0)
    return begin_ns + known.astype(np.int64) * width_ns, np.asarray(sums[known] / counts[known], np.float64)


def _is_fed(
    evidence: Evidence,
    *,
    fed_ratio: Annotated[float, "in a loop that rests, the calls between two readings vary by one"] = 0.9,
) -> bool:
    """Return whether the GPU was busy nearly all the time, so that blocks and readings hold similar numbers of calls."""
    return (utilization_ratio(evidence) or 0.0) >= fed_ratio


@kept
def traffic_levels(evidence: Evidence, began_ns: int) -> WorkLevels | None:
    """Return the levels of GPM's memory traffic, whose readings are means since the reading before.

    If load began just before the window, at ``began_ns``, the first mean holds a part of the time before: it counts as the
    value nearest to the other means that any traffic before explains.

    Return None if the GPU was not busy throughout, traffic is very low, fewer than two means lie in the window, or none holds
    load only.
    """
    if not _is_fed(evidence):
        return None
    window, shown = evidence.window, evidence.trace.column("dram_activity_ratio").observed
    begins_ns, ends_ns = shown.at_ns[:-1], shown.at_ns[1:]
    inside = (begins_ns >= window.begin_ns) & (ends_ns <= window.end_ns)
    values, lengths = shown.values[1:][inside], (ends_ns - begins_ns)[inside]
    before = np.clip((began_ns + _GPM_LAG_NS - begins_ns[inside]) / np.maximum(lengths, 1), 0.0, 1.0)
    clean = before == 0.0
    if len(values) < 2 or not lengths[clean].sum() or not _average(values, lengths) > _LEAST_TRAFFIC_RATIO:
        return None
    usual, loaded = _average(values[clean], lengths[clean]), np.maximum(1.0 - before, 1e-9)
    values = np.where(clean, values, np.clip(usual, (values - before) / loaded, values / loaded))
    mean = _average(values, lengths)
    found = [_level(values, lengths, value) for value in values if value > 0.0]
    ratios = [abs(mean / level - 1.0) for level, share_ns in found if share_ns >= _LEAST_RATIO * window.length_ns]
    if not ratios:
        return None
    apart_ratio = float(values.max() / max(float(values.min()), 1e-9)) - 1.0
    # The readings miss the window's ends: at worst these are at the other level.
    unread_ratio = max(0.0, 1.0 - float(lengths.sum()) / window.length_ns)
    return WorkLevels(
        bound_ratio=min(1.0, max(ratios) + apart_ratio * unread_ratio),
        by="memory traffic",
        group=Group.WHOLE,
        levels_count=len({round(level, 9) for level, _ in found}),
        apart_ratio=apart_ratio,
        span_ns=None,
    )


def _level(values: Values, lengths: Times, value: float) -> tuple[float, float]:
    alike = np.abs(values / value - 1.0) <= _ALIKE_RATIO
    return _average(values[alike], lengths[alike]), float(lengths[alike].sum())


def _average(values: Values, lengths: Times) -> float:
    return float((values * lengths).sum()) / float(lengths.sum())


def farthest(found: Sequence[WorkLevels | None]) -> WorkLevels | None:
    """Return the levels with the largest bound; None without levels."""
    return max((each for each in found if each is not None), key=lambda each: each.bound_ratio, default=None)
