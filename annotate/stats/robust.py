"""Robust statistics of short, autocorrelated, coarsely quantised series: the only module that knows how they are computed.

Series are in the order of time and hold no NaN unless said; nothing here knows of GPUs.  scipy is imported where it is
used, because its ``stats`` takes a second to load.
"""

from dataclasses import dataclass
from heapq import heappop, heappush, heappushpop
from math import isnan

import numpy as np
import numpy.typing as npt

from annotate.evidence import Column, Values


def centre(values: Values) -> float:
    """The median.  Raises ValueError for an empty series."""
    if not len(values):
        raise ValueError("expected at least one value, found none")
    if isnan(values.sum()):
        return float(np.median(values))
    # np.median parts a series at three places at once, which takes seven times as long as at one.
    half = len(values) // 2
    parted = np.array(values)
    parted.partition(half)
    return float(parted[half] if len(values) % 2 else 0.5 * (parted[half] + parted[:half].max()))


def quantiles(values: Values, *shares: float) -> list[float]:
    """The quantiles at these shares, between two values by a straight line; numpy's, which take five times as long."""
    if isnan(values.sum()):
        return [float(each) for each in np.quantile(values, shares)]
    last = len(values) - 1
    places = [last * share for share in shares]
    parted = np.array(values)
    parted.partition(sorted({min(int(place) + more, last) for place in places for more in (0, 1)}))
    out = []
    for place in places:
        part = place - int(place)
        low, high = float(parted[int(place)]), float(parted[min(int(place) + 1, last)])
        out.append(low + (high - low) * part if part < 0.5 else high - (high - low) * (1.0 - part))  # exact at either end
    return out


def row_medians(values: Values, length: int) -> Values:
    """The median of each so many consecutive values, none of them NaN; a rest at the end is left out."""
    half = length // 2
    parted = np.partition(values[: len(values) // length * length].reshape(-1, length), half, axis=1)
    return np.asarray(parted[:, half] if length % 2 else 0.5 * (parted[:, half] + parted[:, :half].max(axis=1)), np.float64)


def spread(values: Values, *, floor: float = 0.0) -> float:
    """The robust standard deviation, 1.4826 times the median absolute deviation, and at least ``floor``.

    A floor of the size of the quantisation keeps a series with more than half of its values equal from having none.
    Raises ValueError for an empty series.
    """
    # Turns the median absolute deviation into the standard deviation of a normal distribution.
    return max(floor, 1.4826 * centre(np.abs(values - centre(values))))


def block_means(column: Column, width_ns: int) -> Column:
    """The means of consecutive blocks of equal width, each at the middle of its block; a rest at the end is left out.

    Means, because a gauge's steps may be as large as what is looked for.  A block of which less than half was observed
    (NaN, or nothing there) is left out too.
    """
    if width_ns <= 0:
        raise ValueError(f"expected a positive block width, found {width_ns} ns")
    if len(column) < 2:
        return Column(column.at_ns[:0], column.values[:0])
    first_ns = int(column.at_ns[0])
    # The last value stands as long as a typical one does, so the grid's end is one step after it.
    end_ns = int(column.at_ns[-1]) + int(np.median(np.diff(column.at_ns)))
    count = (end_ns - first_ns) // width_ns
    edges_ns = first_ns + width_ns * np.arange(count + 1, dtype=np.int64)
    bounds = np.searchsorted(column.at_ns, edges_ns, side="left")
    at_ns, values = [], []
    for low, high, edge_ns in zip(bounds[:-1], bounds[1:], edges_ns[:-1], strict=True):
        block = column.values[low:high]
        seen = block[~np.isnan(block)]
        if len(seen) and 2 * len(seen) >= len(block):
            at_ns.append(int(edge_ns) + width_ns // 2)
            values.append(float(np.mean(seen)))
    return Column(np.array(at_ns, np.int64), np.array(values, np.float64))


@dataclass(frozen=True, slots=True)
class Trend:
    """A monotonic change: its Theil-Sen slope per unit of the abscissa, that slope's standard error, the p value of none."""

    slope: float
    error: float
    p: float

    def least(self, errors: float) -> float:
        """The slope's size less so many standard errors, and at least zero."""
        return max(0.0, abs(self.slope) - errors * self.error)


def trend(at: npt.NDArray[np.float64], values: Values) -> Trend:
    """Theil-Sen slope, and Mann-Kendall's two-sided p with ties and with the correction for autocorrelation.

    The correction only ever widens, p and standard error alike.  At a lag-1 correlation of 0.8 and 60 values it brings
    false trends at p < 0.05 from 47 down to 17 in a hundred: let the size have a say too.  The standard error is a least
    squares line's: Sen's interval of a staircase of few steps begins at zero.  Raises ValueError for fewer than four points.

    Source: Hamed & Rao, Journal of Hydrology 204 (1998) 182-196; Theil 1950, Sen 1968.
    """
    count = len(values)
    if len(at) != count:
        raise ValueError(f"expected as many times as values, found {len(at)} and {count}")
    if count < 4:
        raise ValueError(f"expected at least four points, found {count}")
    from scipy.special import ndtr
    from scipy.stats import theilslopes

    slope = float(theilslopes(values, at).slope)
    residuals = values - slope * at
    widening = _widening(residuals)
    error = float(np.sqrt(widening * count / (count - 2)) * residuals.std() / (np.sqrt(count) * at.std()))
    # Kendall's S, each pair counted once.
    total = float(np.triu(np.sign(values[np.newaxis, :] - values[:, np.newaxis]), 1).sum())
    variance = _kendall_variance(values) * widening
    if variance <= 0.0:  # all values are equal
        return Trend(slope, error, 1.0)
    z = max(0.0, abs(total) - 1.0) / float(np.sqrt(variance))
    return Trend(slope, error, min(1.0, 2.0 * float(ndtr(-z))))


def _kendall_variance(values: Values) -> float:
    """The variance of Kendall's S for independent values with ties."""
    count = len(values)
    ties = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float(count * (count - 1) * (2 * count + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18.0


def _widening(residuals: Values) -> float:
    """Return by how much autocorrelation of the ranks multiplies the variance of S, at least 1."""
    from scipy.stats import rankdata

    count = len(residuals)
    # Rounding must not order what is equal but for it.
    correlations = autocorrelations(rankdata(np.round(residuals, 9)))[1:]
    lags = np.arange(1, count)
    # Positive ones only: taking the slope out leaves spurious negative ones at long lags, which would undo the correction.
    # An autocorrelation beyond this many standard errors counts (two-sided 5 %).
    significant = correlations > 1.96 / np.sqrt(count)
    weights = (count - lags) * (count - lags - 1) * (count - lags - 2)
    sum_ = float((weights * correlations)[significant].sum())
    return max(1.0, 1.0 + 2.0 / (count * (count - 1) * (count - 2)) * sum_)


def autocorrelations(values: Values) -> Values:
    """The autocorrelation at each lag from 0 to one less than the length; zeros after lag 0 for a constant series."""
    count = len(values)
    deviations = values - values.mean()
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(deviations, size)
    covariances = np.fft.irfft(spectrum * np.conj(spectrum), size)[:count]
    # A constant's deviations are rounding errors, and so would be their ratios.
    if covariances[0] <= count * (1e-12 * float(np.abs(values).max(initial=0.0))) ** 2:
        alone = np.zeros(count)
        alone[0] = 1.0
        return alone
    return np.asarray(covariances / covariances[0], np.float64)


def effective_count(values: Values) -> float:
    """Return how many independent values carry as much information about the mean as these, from 1 to their number.

    Geyer's initial positive sequence: autocorrelations are summed in pairs of lags until a pair is not positive.  A
    constant series counts fully.  Raises ValueError for an empty one.

    Source: Geyer, Statistical Science 7 (1992) 473-483.
    """
    count = len(values)
    if not count:
        raise ValueError("expected at least one value, found none")
    correlations = autocorrelations(values)
    pairs = correlations[: count // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0.0)
    kept = pairs[: negative[0]] if len(negative) else pairs
    inflation = max(1.0, 2.0 * float(kept.sum()) - 1.0)
    return max(1.0, count / inflation)


@dataclass(frozen=True, slots=True)
class Step:
    """Two levels: the second begins at ``index``.

    ``noise`` is the robust standard deviation about the levels; ``explained_ratio`` says how much of the mean absolute
    deviation from one level two levels remove (a straight line: a half; two constant levels: all).
    """

    index: int
    before: float
    after: float
    noise: float
    explained_ratio: float

    @property
    def size(self) -> float:
        return self.after - self.before

    @property
    def significance(self) -> float:
        """The size of the step in standard deviations of the values about their levels; infinite without noise."""
        if not self.size:
            return 0.0
        return abs(self.size) / self.noise if self.noise else float("inf")


def step(values: Values, *, side: int = 2, floor: float = 0.0) -> Step | None:
    """Find where two levels with at least ``side`` values each fit best, by least absolute deviations; None if too few values.

    ``floor`` bounds the noise from below, as in ``spread``.  It finds a best place in any series: judge the size and the
    significance.
    """
    count = len(values)
    if side < 1:
        raise ValueError(f"expected at least one value on each side, found {side}")
    if count < 2 * side:
        return None
    ahead, behind = _deviations(values), _deviations(values[::-1])
    costs = [ahead[cut] + behind[count - cut] for cut in range(side, count - side + 1)]
    cut = side + int(np.argmin(costs))
    before, after = centre(values[:cut]), centre(values[cut:])
    noise = spread(np.concatenate([values[:cut] - before, values[cut:] - after]), floor=floor)
    one_level = ahead[count]
    return Step(cut, before, after, noise, 1.0 - min(costs) / one_level if one_level else 0.0)


def _deviations(values: Values) -> list[float]:
    """The summed absolute deviation from the median of the first 0, 1, 2 … values.

    Two heaps hold the lower and the upper half: around a median that sum is the upper half's less the lower half's.  Asking
    each prefix anew takes thirty times as long, and was half of a judge's time.
    """
    base = float(values[0]) if len(values) else 0.0  # small numbers, whose running sums lose nothing
    lower: list[float] = []  # negated
    upper: list[float] = []
    below = above = 0.0
    out = [0.0]
    for value in (values - base).tolist():
        if lower and value < -lower[0]:
            moved = -heappushpop(lower, -value)
            below += value - moved
        else:
            moved = value
        heappush(upper, moved)
        above += moved
        if len(upper) > len(lower):
            least = heappop(upper)
            above -= least
            heappush(lower, -least)
            below += least
        median = -lower[0] if len(lower) > len(upper) else 0.0
        out.append(max(0.0, above - below + median))
    return out


def without_cycle(at: npt.NDArray[np.float64], values: Values, periods: npt.NDArray[np.float64]) -> Values:
    """The values less the one sine wave, of these periods, that fits best together with a straight line.

    The line is fitted and kept, so that a trend over few periods is neither taken for a wave nor made by one.
    """
    if len(values) < 6:
        return values
    u = at - at.mean()
    scale = float(np.abs(u).max()) or 1.0
    turns = 2.0 * np.pi * u / periods[:, np.newaxis]
    design = np.empty((len(periods), 4, len(u)))
    design[:, 0], design[:, 1] = 1.0, u / scale
    np.sin(turns, out=design[:, 2])
    np.cos(turns, out=design[:, 3])
    # All periods at once by their normal equations; the least-norm solution where few values leave the wave undetermined.
    about = values - values.mean()
    moments = design @ about
    weights = (np.linalg.pinv(design @ design.transpose(0, 2, 1), 1e-12, hermitian=True) @ moments[..., np.newaxis])[..., 0]
    # What a least squares fit removes is its weights times the moments: the most removed leaves the least.
    best = int((weights * moments).sum(axis=1).argmax())
    return np.asarray(values - weights[best, 2:] @ design[best, 2:])
