"""Idle time by dips of the driver's 20 ms power record, for windows without start times of their iterations."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.derived.idle_gaps import BEYOND, SAMPLE_NS, IdleGaps, lost_runs, rhythm_s
from annotate.evidence import Column, Evidence, Times, Values, WindowRecord
from annotate.evidence.asked import kept
from annotate.stats.robust import centre, quantiles

_WORKS_RATIO = 0.25  # a sample shows work above this part of the range from idle power to the power of the work
_HISTORY_NS = 5_000_000_000
_FEWEST_SAMPLES = 6
_WORK_QUANTILE = 0.9
_FEWEST_WORKING = 3  # samples at the highest power: fewer may be a spike
_AROUND_NS = 500_000_000
_CENTRES_COUNT = 1000
_FEWEST_DIPS = 5  # fewest dips of a rhythm
_MANY_DIPS = 20  # the sum of fewer unlike dips can grow along a line by chance
_SHALLOWEST_RATIO, _SHALLOW_RATIO = 0.03, 0.25  # a capped clock's controller alone changes power by a quarter
_NOISES, _NOISE_QUANTILE = 3.0, 0.95
_ERROR_RATIO, _LEAST_ERROR_S = 0.25, 1e-3  # error of a dip: power lags the work
_BUSY_QUANTILE = 0.95
_ROUNDED_RATIO = 0.01  # rounding error of the difference of two whole percents


@kept
def work_quantile(evidence: Evidence, *, is_sparse: bool = False) -> float:
    """Return the quantile of the window's power record that is the power of its work.

    The quantile is 0.9, since the median of a window that mostly rested would be the power at rest.  If utilisation shows
    rest for more than half of the window, the work may take less than a tenth of the window.  The highest samples count then.
    ``is_sparse`` (calls between pauses are claimed) always gives the 90th percentile.
    """
    trace, window = evidence.trace, evidence.window
    shown = trace.within("utilization_ratio", window.begin_ns, window.end_ns).observed
    rested_ns = np.diff(shown.at_ns, append=window.end_ns)[shown.values == 0.0].sum() if len(shown) else 0
    if is_sparse or 2 * rested_ns <= window.length_ns:
        return _WORK_QUANTILE
    low, high = np.searchsorted(trace.dense_power.at_ns, (window.begin_ns, window.end_ns), side="right")
    return max(_WORK_QUANTILE, 1.0 - _FEWEST_WORKING / max(1, int(high - low)))


def resting_power_w(
    dense: Column,
    window: WindowRecord,
    *,
    work: float = _WORK_QUANTILE,
    resting_ratio: Annotated[float, "a GPU at rest draws less than this share of the power of its work"] = 0.6,
) -> float | None:
    """Return the lowest power in the window and the five seconds before, or None if the GPU never rested or samples are few.

    ``work`` is the quantile of the window's record that is the power of its work.
    """
    since, low = np.searchsorted(dense.at_ns, (window.begin_ns - _HISTORY_NS, window.begin_ns))
    high = int(np.searchsorted(dense.at_ns, window.end_ns, side="right"))
    if high - low < _FEWEST_SAMPLES:
        return None
    lowest_w = float(dense.values[since:high].min())
    return lowest_w if lowest_w < resting_ratio * quantiles(dense.values[low:high], work)[0] else None


def is_whole(dense: Column, window: WindowRecord, *, least_ratio: float = 0.95) -> bool:
    """Return whether the power record has nearly all samples of the window."""
    low, high = np.searchsorted(dense.at_ns, (window.begin_ns, window.end_ns), side="right")
    return int(high - low) * SAMPLE_NS >= least_ratio * window.length_ns


@dataclass(frozen=True, slots=True)
class _Dips:
    """Runs of samples below the power of the work, with idle time and the observed time up to each start and end."""

    begin_ns: Times
    end_ns: Times
    idle_s: Values
    begin_watched_ns: Times
    end_watched_ns: Times
    watched_ns: int
    at_edge: npt.NDArray[np.bool_]


def power_dips(
    dense: Column, window: WindowRecord, *, idle_w: float | None = None, work: float = _WORK_QUANTILE
) -> IdleGaps | None:
    """Return the dips of power in a window; None with fewer than six samples or without a known idle power.

    A sample that fell part of the way from the power of the work to ``idle_w`` counts as idle for that part of its time.
    The work itself pauses in a rhythm, so a dip in a rhythm is irregular only above five times the usual length.
    """
    low, high = np.searchsorted(dense.at_ns, (window.begin_ns, window.end_ns), side="right")
    at_ns, power_w = dense.at_ns[low:high], dense.values[low:high]
    if len(at_ns) < _FEWEST_SAMPLES or window.length_ns <= 0:
        return None
    if idle_w is None:
        idle_w = resting_power_w(dense, window, work=work)
    if idle_w is None:
        return None
    found = _dips(at_ns, power_w, idle_w, window.begin_ns, work)
    usual_s = _rhythm_s(found)
    errors_s = np.minimum(SAMPLE_NS / 1e9, np.maximum(_ERROR_RATIO * found.idle_s, _LEAST_ERROR_S))
    return IdleGaps(
        begin_ns=found.begin_ns,
        end_ns=found.end_ns,
        idle_s=found.idle_s,
        irregular=found.idle_s > BEYOND * usual_s,
        usual_s=usual_s,
        errors_s=errors_s,
        blur_s=SAMPLE_NS / 1e9,
        window_s=window.length_s,
    )


def _dips(at_ns: Times, power_w: Values, idle_w: float, begin_ns: int, work: float) -> _Dips:
    around_w = _working_around_w(at_ns, power_w, idle_w, work)
    fallen = (around_w - power_w) / np.maximum(around_w - idle_w, 1.0)
    # Idle time only lowers power, so any value above the power of the work is noise.
    above = -fallen[fallen < 0.0]
    noise = quantiles(above, _NOISE_QUANTILE)[0] if len(above) else 0.0
    found = fallen > float(np.clip(_NOISES * noise, _SHALLOWEST_RATIO, _SHALLOW_RATIO))
    since_ns = max(int(at_ns[0]) - SAMPLE_NS, begin_ns)
    spacing_ns = np.minimum(np.diff(at_ns, prepend=since_ns), 2 * SAMPLE_NS)
    firsts, lasts, idle_s = lost_runs(found, np.clip(fallen, 0.0, 1.0) * spacing_ns / 1e9)
    watched_ns = np.cumsum(spacing_ns)
    return _Dips(
        begin_ns=at_ns[firsts] - spacing_ns[firsts],
        end_ns=at_ns[lasts],
        idle_s=idle_s,
        begin_watched_ns=watched_ns[firsts] - spacing_ns[firsts],
        end_watched_ns=watched_ns[lasts],
        watched_ns=int(watched_ns[-1]),
        at_edge=(firsts == 0) | (lasts == len(at_ns) - 1),
    )


def _rhythm_s(
    dips: _Dips,
    *,
    wander: Annotated[
        float, "of mean times root of count: 24 rhythms of even seeds read 0.2 to 0.74, 19 random ones 0.8 to 1.6"
    ] = 0.77,
) -> float:
    """Return the usual length of dips in a rhythm; 0 if the dips within the window form no rhythm.

    The dips of a rhythm are alike, too short for the record, or many.  The idle time of a rhythm grows along a straight line.
    The idle time of random dips deviates by the root of their count.
    """
    within = ~dips.at_edge
    is_many = int(within.sum()) >= _MANY_DIPS
    usual_s = centre(dips.idle_s[within]) if is_many else rhythm_s(dips.idle_s[within])
    if not usual_s:
        return 0.0
    kept = within & (dips.idle_s <= BEYOND * usual_s)
    count = int(kept.sum())
    if count < _FEWEST_DIPS:
        return 0.0
    # Longer idle stretches have another cause: they do not count as time of the rhythm.
    apart_ns = np.cumsum(np.where(kept, 0, dips.end_watched_ns - dips.begin_watched_ns))
    place_ns = (0.5 * (dips.begin_watched_ns + dips.end_watched_ns) - apart_ns)[kept]
    idle_s = dips.idle_s[kept]
    grown_s = np.cumsum(idle_s)
    line_s = grown_s[-1] * place_ns / max(1, dips.watched_ns - int(apart_ns[-1]))
    wandered_s = max(float((grown_s - line_s).max()), 0.0) - min(float((grown_s - idle_s - line_s).min()), 0.0)
    return usual_s if wandered_s <= wander * float(idle_s.mean()) * count**0.5 else 0.0


def limited_dips(
    dips: IdleGaps,
    evidence: Evidence,
    *,
    missed: Annotated[
        float, "utilisation can miss part of a refresh: stalls of 0.1 to 0.3 s lost 54 to 130 % of their length"
    ] = 2.0,
) -> IdleGaps:
    """Return the dips with their idle time limited by utilisation, because data and clock also lower power.

    The limit is the loss of utilisation against the busiest readings or, for five dips or more without a rhythm, 100 %.  A
    reading covers the refresh before it, and may be one refresh old.
    """
    trace, window = evidence.trace, evidence.window
    refresh_ns = trace.refresh_of_ns("utilization_ratio")
    shown = trace.within("utilization_ratio", window.begin_ns + refresh_ns, window.end_ns + 2 * refresh_ns).observed
    inside = shown.values[(shown.at_ns >= window.begin_ns + 2 * refresh_ns) & (shown.at_ns < window.end_ns)]
    if not len(dips.idle_s) or not len(inside):
        return dips
    is_many = dips.usual_s == 0.0 and len(dips.idle_s) >= _FEWEST_DIPS
    busiest = 1.0 if is_many else quantiles(inside, _BUSY_QUANTILE)[0]
    if busiest <= 0.0:
        return dips
    steps_s = np.minimum(np.diff(shown.at_ns, append=shown.at_ns[-1]), refresh_ns) / 1e9
    lost = missed * np.clip(1.0 - shown.values / busiest - _ROUNDED_RATIO, 0.0, 1.0) + _ROUNDED_RATIO
    total_s = np.concatenate([[0.0], np.cumsum(lost * steps_s)])
    first = np.searchsorted(shown.at_ns, dips.begin_ns)
    last = np.searchsorted(shown.at_ns, dips.end_ns + 2 * refresh_ns, side="right")
    is_shown = shown.at_ns[-1] >= dips.end_ns + refresh_ns
    most_s = dips.usual_s + np.where(is_shown, total_s[last] - total_s[np.minimum(first, last)], np.inf)
    # Utilisation may miss a short stall.  If it lost at most a quarter of a longer dip, the GPU worked at less power.
    is_long = dips.end_ns - dips.begin_ns > 2 * SAMPLE_NS
    worked = is_long & (dips.idle_s > missed * most_s)
    idle_s = np.where(worked, 0.0, np.minimum(dips.idle_s, most_s))
    errors_s = np.where(worked, 0.0, np.minimum(dips.errors_s, most_s - idle_s))
    return replace(dips, idle_s=idle_s, errors_s=errors_s, irregular=dips.irregular & ~worked)


def _working_around_w(at_ns: Times, power_w: Values, idle_w: float, work: float) -> Values:
    """Return the median power of the working samples within half a second of each sample.

    Where none is near, take the median of all working samples; without any, return the power unchanged.
    """
    works = power_w > idle_w + _WORKS_RATIO * (quantiles(power_w, work)[0] - idle_w)
    if not works.any():
        return power_w
    work_ns, work_w = at_ns[works], power_w[works]
    span_ns = int(at_ns[-1] - at_ns[0])
    centres_ns = np.arange(at_ns[0], at_ns[-1] + 1, max(_AROUND_NS // 2, span_ns // _CENTRES_COUNT), dtype=np.int64)
    low = np.searchsorted(work_ns, centres_ns - _AROUND_NS, side="left")
    high = np.searchsorted(work_ns, centres_ns + _AROUND_NS, side="right")
    usual_w = centre(work_w)
    medians = [centre(work_w[i:j]) if j > i else usual_w for i, j in zip(low, high, strict=True)]
    return np.interp(at_ns, centres_ns, medians)
