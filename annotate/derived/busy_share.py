"""The share of a window in which the GPU was busy, by each witness outside the measured process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.derived.idle_gaps import BEYOND, lost_runs, rhythm_s
from annotate.derived.presence import Presence, presences
from annotate.evidence import Evidence, Lane, Trace, signals
from annotate.evidence.asked import kept
from annotate.stats.robust import centre

UTILISATION = "utilisation"
REST_RATIO = 1.0 / 6.0  # idle power over the power limit: an H200 with a context draws 117 of 700 W
_SLOW_NS = 2_500_000_000  # longest span of one GPM mean: the slow lane reads once a second
_ROUNDED_RATIO = 0.005  # the driver reports whole percents
_FEWEST_REFRESHES = 3
_DEEP_RATIO = 0.25  # as for power dips: the work itself may cause a smaller loss
_MOST_SMS_COUNT = 192  # SMs of the largest chip: work on one SM alone reads as 1/192
_GPM_LAG_NS = 100_000_000  # an H200 read zero for 19 to 126 ms of kernels, and for 0.8 s with kernels in the last 61 ms
_AT_REST_RATIO = 0.03  # the driver reports 1 to 2 % for an idle process
_WORKS_RATIO, _RESTS_RATIO = 0.05, 0.01  # parts of the power range from idle to limit


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyShare:
    """A busy share by one witness: its lower bound, the witness's value, and its upper bound.

    ``is_own`` marks the share of the window's processes alone.  Other witnesses measure the whole GPU.
    """

    witness: str
    least_ratio: float
    ratio: float
    most_ratio: float
    is_own: bool = False
    inner_ratio: float = 0.0  # lower bound by the readings that certainly describe the window; 0 if unknown


def busy_witnesses(evidence: Evidence, idle_w: float | None = None) -> tuple[BusyShare, ...]:
    """Return the busy share by each witness with enough readings in the window, the most trusted first."""
    found = (
        _by_activity(evidence),
        _by_gauge(evidence, "utilization_record_ratio"),
        _by_gauge(evidence, "utilization_ratio"),
        _by_process(evidence),
        _by_energy(evidence, idle_w),
    )
    return tuple(each for each in found if each is not None)


def gauge_share(shares: Sequence[BusyShare]) -> BusyShare | None:
    """Return the busy share by the driver's utilisation: from its record if available, else from its gauge, else None."""
    return next((share for share in shares if share.witness == UTILISATION), None)


def is_contradicted(evidence: Evidence, shares: Sequence[BusyShare], idle_w: float | None = None) -> bool:
    """Return whether utilisation shows an idle GPU while energy shows a working one; the busy share is then unknown.

    NVML defines utilisation as the time with a running kernel.  An H200 also counts copies from and to the host; other GPUs
    may not.
    """
    gauge, limit_w = gauge_share(shares), evidence.device.power_limit_w if evidence.device is not None else None
    if gauge is None or gauge.most_ratio > _AT_REST_RATIO or limit_w is None:
        return False
    energy = _by_energy(evidence, idle_w if idle_w is not None else REST_RATIO * limit_w)
    return energy is not None and energy.least_ratio > 0.0


def gauge_lost_ratio(
    evidence: Evidence,
    *,
    beyond: Annotated[float, "as for gaps: an outlier is this many usual deviations below the median"] = BEYOND,
) -> float | None:
    """Return the share of the window that utilisation lost against its median, or None if unknown.

    Readings of a loop that waits for its launches vary, so only outlying readings count.  A loop that rests in a rhythm has
    low runs of similar length, so only outlying runs count.  Readings of the first two refreshes are omitted: they may
    describe the time before the window.  If the daemon read less often than the driver refreshes, each run may be longer.
    """
    trace, window = evidence.trace, evidence.window
    refresh_ns = trace.refresh_of_ns("utilization_ratio")
    if window.length_ns < _FEWEST_REFRESHES * refresh_ns:
        return None
    shown = trace.within("utilization_ratio", window.begin_ns + 2 * refresh_ns, window.end_ns).observed
    if not len(shown):
        return None
    usual = centre(shown.values)
    fallen = usual - shown.values
    lost = np.where(fallen > beyond * (centre(np.abs(fallen)) + _ROUNDED_RATIO), np.maximum(fallen, 0.0), 0.0)
    spacing_s = (shown.at_ns[-1] - shown.at_ns[0]) / 1e9 / max(1, len(shown) - 1)
    # Readings are means, so even a short run measures its loss: only runs of similar length form a rhythm.
    deep = lost > _DEEP_RATIO * usual
    usual_s = rhythm_s(lost_runs(deep, lost * spacing_s)[2], spacing_s=0.0)
    if not usual_s:
        runs_count = len(lost_runs(lost > 0.0, lost)[2])
        return float(lost.mean()) + runs_count * _unread_s(evidence, refresh_ns) / window.length_s
    runs_s = lost_runs(lost > 0.0, lost * spacing_s)[2]
    return float(np.where(runs_s > beyond * usual_s, runs_s - usual_s, 0.0).sum() / (spacing_s * len(shown)))


def _unread_s(evidence: Evidence, refresh_ns: int) -> float:
    """Return the unread time between two readings of utilisation; 0 if the daemon read every refresh.

    A run of low readings may be longer by this time.  The daemon seldom stores a value that repeats, so the signal with the
    densest rows shows how often the daemon read the driver.
    """
    window, spacings = evidence.window, []
    for name in signals(Lane.FAST):
        read_ns = evidence.trace.column(name).at_ns
        first, last = read_ns.searchsorted((window.begin_ns, window.end_ns))
        if last - first > _FEWEST_REFRESHES:
            spacings.append(centre(np.diff(read_ns[first:last])))
    return max(0.0, min(spacings, default=0.0) - refresh_ns) / 1e9


def rhythm_lost_ratio(
    evidence: Evidence,
    pause_s: float,
    *,
    parts: Annotated[int, "the specification: a level holds a fifth of the window"] = 5,
    calls: Annotated[float, "a part may hold one call more than its share, and the mean one less"] = 2.0,
) -> float:
    """Return the share of throughput that a rhythm of pauses lost against its busiest fifth; 0 if steady or unknown.

    Growing pauses do not belong to the work, however regular they are: other processes that delay the launches can cause them.
    """
    trace, window = evidence.trace, evidence.window
    refresh_ns = trace.refresh_of_ns("utilization_ratio")
    begin_ns = window.begin_ns + 2 * refresh_ns
    shown = trace.within("utilization_ratio", begin_ns, window.end_ns).observed
    part_ns = (window.end_ns - begin_ns) // parts
    if part_ns < refresh_ns or not len(shown):
        return 0.0
    part = np.minimum((shown.at_ns - begin_ns) // part_ns, parts - 1)
    counts = np.bincount(part, minlength=parts)
    means = np.bincount(part, shown.values, parts)[counts > 0] / counts[counts > 0]
    mean, most = float(shown.values.mean()), float(means.max())
    if not 0.0 < mean < 1.0:
        return 0.0
    call_s = pause_s * mean / (1.0 - mean)
    is_beyond = most - mean > calls * call_s / (part_ns / 1e9) + _ROUNDED_RATIO
    return 1.0 - mean / most if is_beyond else 0.0


def own_share(shares: Sequence[BusyShare]) -> BusyShare | None:
    """Return the busy share of the window's processes, by the driver's record of each process; None without a record."""
    return next((share for share in shares if share.is_own), None)


@kept
def foreign_most_ratio(evidence: Evidence) -> float:
    """Return the largest share of the window in which the foreign processes on record can have kept the GPU busy."""
    return min(1.0, sum(each.most_ratio or 0.0 for each in presences(evidence) if not each.own))


def _by_activity(evidence: Evidence) -> BusyShare | None:
    """Return the busy share by GPM's SM activity, the mean over all SMs of the time with resident warps; None if mostly unread.

    A kernel of one block that always runs reads as 1/N on N SMs.  The upper bound is therefore multiplied by the most SMs of
    a chip.  A row may lack the last 0.1 s before it, which the next row then holds.  The bounds therefore cover both
    positions of the span.
    """
    window = evidence.window
    found = [_activity(evidence.trace, window.begin_ns + lag_ns, window.end_ns + lag_ns) for lag_ns in (0, _GPM_LAG_NS)]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    least, ratio, most = zip(*known, strict=True)
    return BusyShare(
        witness="SM activity",
        least_ratio=min(least),
        ratio=sum(ratio) / len(ratio),
        most_ratio=min(1.0, max(most) * _MOST_SMS_COUNT),
    )


def _activity(trace: Trace, begin_ns: int, end_ns: int) -> tuple[float, float, float] | None:
    """Return the lower bound, mean and upper bound of activity in a span, or None if rows cover less than half of it."""
    seen = trace.column("sm_activity_ratio")
    if len(seen) < 2:
        return None
    begins_ns = np.maximum(seen.at_ns[:-1], seen.at_ns[1:] - _SLOW_NS)
    lengths_ns, values = seen.at_ns[1:] - begins_ns, seen.values[1:]
    inside_ns = np.minimum(seen.at_ns[1:], end_ns) - np.maximum(begins_ns, begin_ns)
    kept = (inside_ns > 0) & ~np.isnan(values)
    known_ns = float(inside_ns[kept].sum())
    if known_ns == 0.0 or 2.0 * known_ns < end_ns - begin_ns:
        return None
    # The busy time of a row that straddles an edge may lie outside or inside the span as far as it fits.
    busy_ns, outside_ns = values[kept] * lengths_ns[kept], lengths_ns[kept] - inside_ns[kept]
    least = float(np.maximum(busy_ns - outside_ns, 0.0).sum()) / known_ns
    most = float(np.minimum(busy_ns, inside_ns[kept]).sum()) / known_ns
    ratio = float((values[kept] * inside_ns[kept]).sum()) / known_ns
    return min(least, ratio), ratio, most


def _by_gauge(evidence: Evidence, name: str) -> BusyShare | None:
    """Return the busy share by the mean of a utilisation gauge; None below three refreshes, or if mostly unknown.

    A reading describes the refresh before it, and may be one refresh old.  The readings that describe the window's edges
    are not known, so the bounds come from the means with and without the readings near the edges.
    """
    trace, window = evidence.trace, evidence.window
    refresh_ns = trace.refresh_of_ns(name)
    if not trace.observes(name) or window.length_ns < _FEWEST_REFRESHES * refresh_ns:
        return None
    shown = trace.within(name, window.begin_ns + refresh_ns, window.end_ns + refresh_ns)
    known = ~np.isnan(shown.values)
    if 2 * int(known.sum()) < len(known):
        return None
    total = np.concatenate([[0.0], np.cumsum(np.where(known, shown.values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    edges_ns = [window.begin_ns + refresh_ns, window.begin_ns + 2 * refresh_ns, window.end_ns, window.end_ns + refresh_ns]
    early, late, inner, outer = np.searchsorted(shown.at_ns, edges_ns)
    spans = ((early, inner), (late, inner), (early, outer), (late, outer))
    means = [
        float((total[last] - total[first]) / (counts[last] - counts[first]))
        for first, last in spans
        if counts[last] > counts[first]
    ]
    return BusyShare(
        witness=UTILISATION,
        least_ratio=max(0.0, min(means) - _ROUNDED_RATIO),
        ratio=means[0],
        most_ratio=min(1.0, max(means) + _ROUNDED_RATIO),
        inner_ratio=max(0.0, float((total[inner] - total[late]) / (counts[inner] - counts[late])) - _ROUNDED_RATIO)
        if counts[inner] > counts[late]
        else 0.0,
    )


def _by_process(evidence: Evidence) -> BusyShare | None:
    """Return the busy share by the driver's record of each process; None without a record.

    The record omits some processes, so it can prove work but not idleness.
    """
    own = [each for each in presences(evidence) if each.own and each.least_ratio is not None]
    if not own:
        return None
    least = min(1.0, _sum(own, "least_ratio"))
    most = min(1.0, _sum(own, "most_ratio"))
    return BusyShare(witness="process utilisation", least_ratio=least, ratio=0.5 * (least + most), most_ratio=1.0, is_own=True)


def _sum(of: list[Presence], name: str) -> float:
    return float(sum(getattr(each, name) or 0.0 for each in of))


def _by_energy(evidence: Evidence, idle_w: float | None) -> BusyShare | None:
    """Return the busy share by energy above idle power: work or rest; return None if unknown or between both."""
    device, rise = evidence.device, evidence.increase("energy_j")
    limit_w = device.power_limit_w if device is not None else None
    if rise is None or idle_w is None or limit_w is None or limit_w <= idle_w:
        return None
    if 2 * rise.span_ns > 3 * evidence.window.length_ns:  # more than a third of the span lies outside the window
        return None
    ratio = (rise.amount / (rise.span_ns / 1e9) - idle_w) / (limit_w - idle_w)
    if _RESTS_RATIO <= ratio <= _WORKS_RATIO:
        return None
    shown = min(1.0, max(0.0, ratio))
    works = ratio > _WORKS_RATIO
    return BusyShare(witness="energy", least_ratio=shown if works else 0.0, ratio=shown, most_ratio=1.0 if works else 0.0)
