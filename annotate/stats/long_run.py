"""Variances of correlated series: within a controller's cycle, over whole cycles, and in the long run.

The power controller of an H200 swings the clock periodically.  The swing cancels in a mean over whole cycles, but not in
any other mean.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values
from annotate.stats.intervals import block_length_count
from annotate.stats.robust import centre, quantiles

_CONFIDENCE = 0.95
# Even if the level changes once per cycle, a tenth of the stretches of one cycle are nearly free of changes.
_QUIET_RATIO = 0.1
_BLOCKS_COUNT = 2048  # a longer series is averaged into 1024 to 2048 blocks, which keeps the long-run variance
_FEWEST_CYCLES = 2
_FEWEST_COUNT = 6  # fewer values give no useful variance
_NORMAL_SD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True, slots=True)
class WithinSpread:
    """The repeatability of a statistic within one window: half the 95 % interval as a ratio of the value, and the basis."""

    half_ratio: float
    blocks_count: int
    by_cycles: bool


def cycle_variance(values: Values, cycle_count: int) -> float:
    """Return the variance per value that one cycle's swing leaves in the mean of a segment.

    The variance of a stretch of ``cycle_count`` values is the largest m × mean square of the m-means about the stretch's mean,
    for m up to half of the stretch.  The result is the 10 % quantile over all stretches: a change of level widens only some
    stretches, while a controller's cycle is in every stretch.  A stretch has at least six values if the series does, because
    the 10 % quantile of shorter stretches would be near zero by chance.
    """
    length = min(max(_FEWEST_COUNT, cycle_count), len(values))
    if length < 2:
        return 0.0
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    stretches = np.lib.stride_tricks.sliding_window_view(sums, length + 1)
    middles = (stretches[:, -1:] - stretches[:, :1]) / length
    widest = np.zeros(len(stretches))
    for size in range(1, length // 2 + 1):
        off = (stretches[:, size:] - stretches[:, :-size]) / size - middles
        np.maximum(widest, size * (np.square(off).sum(axis=1) / off.shape[1]), out=widest)
    return quantiles(widest, _QUIET_RATIO)[0]


def long_run_variance(values: Values) -> tuple[float, int]:
    """Return the variance of a series' mean multiplied by the number of values, and the number of disjoint blocks.

    The estimate uses overlapping block means of Politis and White's automatic length, and is scaled up for few blocks.

    Source: Künsch, Annals of Statistics 17 (1989) 1217-1241.
    """
    size = -(-len(values) // _BLOCKS_COUNT)
    means = values[: len(values) // size * size].reshape(-1, size).mean(axis=1) if size > 1 else values
    count = len(means)
    length = block_length_count(means) if count >= _FEWEST_COUNT else 1
    sums = np.concatenate([[0.0], np.cumsum(means - means.mean())])
    blocks = (sums[length:] - sums[:-length]) / length
    scale = count / max(1, count - length)
    return float(size * length * np.square(blocks).mean() * scale), count // length


def mean_within(at_ns: Times, values: Values, *, cycle_ns: int | None) -> WithinSpread | None:
    """Return the repeatability of the mean of a window's values; None for a mean of 0, or too few values, blocks or cycles.

    With ``cycle_ns``, the repeatability comes from the means of at least two whole cycles.  Otherwise the repeatability
    comes from the long-run variance.
    """
    if len(values) < _FEWEST_COUNT or not values.mean():
        return None
    if cycle_ns is None:
        variance, blocks_count = long_run_variance(values)
        return _spread((variance / len(values)) ** 0.5 / abs(float(values.mean())), blocks_count, by_cycles=False)
    means = cycle_means(at_ns, values, cycle_ns)
    if len(means) < _FEWEST_CYCLES:
        return None
    error = float(means.std(ddof=1)) / len(means) ** 0.5
    return _spread(error / abs(float(values.mean())), len(means), by_cycles=True)


def median_within(at_ns: Times, values: Values, *, cycle_ns: int | None, middle: float | None = None) -> WithinSpread | None:
    """Return the repeatability of a window's median; None for a median of 0, or too few independent values or cycles.

    The result is the larger side of Woodruff's interval: the share of values below the median is a mean, whose error gives
    two quantiles.  No density is estimated, because times on a timer's grid have none.  ``middle`` is the median, if known.

    Source: Woodruff, Journal of the American Statistical Association 47 (1952) 635-646.
    """
    if len(values) < _FEWEST_COUNT:
        return None
    middle = centre(values) if middle is None else middle
    below = (values < middle) + 0.5 * (values == middle)
    share = mean_within(at_ns, below, cycle_ns=cycle_ns)
    if share is None or not middle:
        return None
    reach = share.half_ratio * float(below.mean())
    if reach >= 0.5:
        return None
    low, high = quantiles(values, 0.5 - reach, 0.5 + reach)
    return WithinSpread(max(high - middle, middle - low) / abs(middle), share.blocks_count, share.by_cycles)


def cycle_means(at_ns: Times, values: Values, cycle_ns: int) -> Values:
    """Return the mean of the values of each whole cycle, from the first value on; a cycle without values is left out."""
    if not len(values):
        return np.empty(0)
    place: npt.NDArray[np.int64] = (at_ns - at_ns[0]) // cycle_ns
    # The last value covers one median step.
    step_ns = int(centre(np.diff(at_ns))) if len(at_ns) > 1 else 0
    cycles_count = int((at_ns[-1] - at_ns[0] + step_ns) // cycle_ns)
    kept = place < cycles_count
    counts = np.bincount(place[kept], minlength=cycles_count)
    sums = np.bincount(place[kept], values[kept], cycles_count)
    return np.asarray(sums[counts > 0] / counts[counts > 0], np.float64)


def _spread(error_ratio: float, blocks_count: int, *, by_cycles: bool) -> WithinSpread | None:
    from scipy.special import stdtrit

    if blocks_count < 2:
        return None
    return WithinSpread(float(stdtrit(blocks_count - 1, 0.5 + 0.5 * _CONFIDENCE)) * error_ratio, blocks_count, by_cycles)


def adjacent_variance(logs: Values) -> float:
    """Return the variance by the median difference between adjacent values, which levels and slopes hardly change."""
    return (_NORMAL_SD * centre(np.abs(np.diff(logs)))) ** 2 / 2.0 if len(logs) > 1 else 0.0
