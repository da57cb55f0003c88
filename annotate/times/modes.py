"""Two groups of times in a window, and the test of the valley between them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from annotate.evidence import Values
from annotate.stats.robust import centre, quantiles
from annotate.times.durations import floor_s, worth_count

_GRID_COUNT = 256
# Outliers and tails of 1 % must not stretch the grid: a mode holds more.
_TAIL_PERCENT = 1.0
FEWEST_COUNT = 12


@dataclass(frozen=True, slots=True)
class Modes:
    """Two groups of times: the two peaks, and the valley between them with its depth and significance.

    ``depth_ratio`` is the density in the valley divided by that of the lower peak.  ``p`` is the probability of such a valley
    by chance.
    """

    fast_s: float
    slow_s: float
    split_s: float
    slow_ratio: float  # the share of the slow group
    depth_ratio: float
    p: float

    @property
    def separation_ratio(self) -> float:
        return self.slow_s / self.fast_s - 1.0

    @property
    def minor_ratio(self) -> float:
        return min(self.slow_ratio, 1.0 - self.slow_ratio)


def two_modes(took_s: Values, *, minor_ratio: float = 0.05) -> Modes | None:
    """Find the deepest valley between two groups of at least ``minor_ratio`` of the times each.

    Return None for fewer than 12 times, for times within the timer's resolution, or without a valley.

    Between two points, a density with one peak never falls below the lower of its two values there.  A binomial test compares
    the counts of equally wide intervals at the valley and at the lower peak.  The counts are first reduced by the
    autocorrelation of the groups: one switch in a window is two observations, not thousands.
    """
    if len(took_s) < FEWEST_COUNT:
        return None
    logs = np.log(took_s)
    low, high = quantiles(logs, _TAIL_PERCENT / 100.0, (100.0 - _TAIL_PERCENT) / 100.0)
    middle_s = centre(took_s)
    least = 2.0 * floor_s(middle_s) / middle_s
    if high - low <= least:
        return None
    width = max(_bandwidth(logs[(logs >= low) & (logs <= high)]), least, (high - low) / _GRID_COUNT)
    counts, edges = np.histogram(logs, bins=_GRID_COUNT, range=(low - 3.0 * width, high + 3.0 * width))
    at = (edges[:-1] + edges[1:]) / 2.0
    density = _smooth(counts, width / float(edges[1] - edges[0]))
    valley = _deepest(density, np.cumsum(counts) / len(logs), minor_ratio)
    if valley is None:
        return None
    left, right = int(np.argmax(density[:valley])), valley + int(np.argmax(density[valley:]))
    split = float(at[valley])
    slow = logs > split
    minor = left if density[left] < density[right] else right
    valley_count = int((np.abs(logs - split) <= width).sum())
    peak_count = int((np.abs(logs - float(at[minor])) <= width).sum())
    return Modes(
        fast_s=float(np.exp(at[left])),
        slow_s=float(np.exp(at[right])),
        split_s=float(np.exp(split)),
        slow_ratio=float(slow.mean()),
        depth_ratio=float(density[valley] / min(density[left], density[right])),
        p=_p_of_no_valley(valley_count, peak_count, worth_count(slow.astype(np.float64)) / len(logs)),
    )


def _bandwidth(values: Values) -> float:
    """Return the bandwidth by Silverman's rule of thumb."""
    quarter, three_quarters = quantiles(values, 0.25, 0.75)
    width = min(float(values.std()), (three_quarters - quarter) / 1.34)
    return float(0.9 * width * len(values) ** -0.2)


def _smooth(counts: npt.NDArray[np.intp], width: float) -> Values:
    reach = min(int(np.ceil(4.0 * width)), _GRID_COUNT // 2 - 1)
    kernel = np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) / width))
    return np.asarray(np.convolve(counts.astype(np.float64), kernel / kernel.sum(), mode="same"), np.float64)


def _deepest(density: Values, below_ratio: Values, minor_ratio: float) -> int | None:
    """Return the index of the deepest valley, relative to the lower of the peaks on its two sides; None without a valley."""
    peaks = np.minimum(np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1])
    depth = np.divide(density, peaks, out=np.ones_like(density), where=peaks > 0)
    depth[(below_ratio < minor_ratio) | (below_ratio > 1.0 - minor_ratio)] = 1.0
    least = float(depth.min())
    if least >= 1.0:
        return None
    # Return the middle one of the lowest points, not their mean: between two equally low points there may be a peak.
    lowest = np.flatnonzero((depth <= least + 1e-3) & (depth < 1.0))
    return int(lowest[(len(lowest) - 1) // 2])


def _p_of_no_valley(valley_count: int, peak_count: int, worth_ratio: float) -> float:
    """Return the probability of at most ``valley_count`` times in the valley if the valley were as dense as the lower peak."""
    from scipy.special import bdtr

    total = int((valley_count + peak_count) * worth_ratio)
    low = min(int(valley_count * worth_ratio), total)
    return float(bdtr(low, total, 0.5)) if total else 1.0
