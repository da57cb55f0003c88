"""Robust statistics of short, autocorrelated, coarsely quantised series.

Series are in the order of time and hold no NaN unless stated.
"""

from math import isnan

import numpy as np
import numpy.typing as npt

from annotate.evidence import Column, Values


def centre(values: Values) -> float:
    """Return the median.

    Raises ValueError for an empty series.
    """
    if not len(values):
        raise ValueError("expected at least one value, found none")
    # Faster than np.median.  A NaN is the last value.
    half, last = len(values) // 2, len(values) - 1
    parted = np.array(values)
    parted.partition((half - 1, half, last))
    if isnan(parted[last]):
        return float("nan")
    return float(parted[half] if len(values) % 2 else 0.5 * (parted[half - 1] + parted[half]))


def quantiles(values: Values, *shares: float) -> list[float]:
    """Return the quantiles at these shares, with linear interpolation: the same values as numpy's, but faster."""
    last = len(values) - 1
    places = [last * share for share in shares]
    parted = np.array(values)
    parted.partition([*{min(int(place) + more, last) for place in places for more in (0, 1)}, last])
    if isnan(parted[last]):
        return [float("nan") for _ in shares]
    out = []
    for place in places:
        part = place - int(place)
        low, high = float(parted[int(place)]), float(parted[min(int(place) + 1, last)])
        out.append(low + (high - low) * part if part < 0.5 else high - (high - low) * (1.0 - part))  # exact at either end
    return out


def row_medians(values: Values, length: int) -> Values:
    """Return the medians of consecutive groups of ``length`` values without NaN; an incomplete last group is left out."""
    half = length // 2
    parted = np.partition(values[: len(values) // length * length].reshape(-1, length), half, axis=1)
    return np.asarray(parted[:, half] if length % 2 else 0.5 * (parted[:, half] + parted[:, :half].max(axis=1)), np.float64)


def trimmed_means(
    place: npt.NDArray[np.intp], values: Values, blocks_count: int, *, trim_ratio: float
) -> tuple[Values, Values]:
    """Return each block's mean without ``trim_ratio`` of its values at either end, and the count of all its values.

    The mean is NaN for a block without values.
    """
    ordered = values[np.argsort(place, kind="stable")]
    counts = np.bincount(place, minlength=blocks_count)
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):  # faster than one sort by two keys
        ordered[begin : begin + count].sort()
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    trimmed = (trim_ratio * counts).astype(np.intp)
    left = counts - 2 * trimmed
    out = np.full(blocks_count, np.nan)
    some = left > 0
    out[some] = (sums[(begins + counts - trimmed)[some]] - sums[(begins + trimmed)[some]]) / left[some]
    return out, counts.astype(np.float64)


def spread(values: Values, *, floor: float = 0.0, middle: float | None = None) -> float:
    """Return the robust standard deviation, 1.4826 times the median absolute deviation, and at least ``floor``.

    ``middle`` is the median, if it is already known.

    Without a floor of the size of the quantisation, a series with more than half of the values equal has a spread of zero.
    Raises ValueError for an empty series.
    """
    # The factor converts the median absolute deviation to the standard deviation of a normal distribution.
    return max(floor, 1.4826 * centre(np.abs(values - (centre(values) if middle is None else middle))))


def block_means(column: Column, width_ns: int) -> Column:
    """Return the means of consecutive blocks of equal width, each at the middle of its block, without a remainder.

    Means smooth the steps of a gauge.  A block without rows, or with more than half NaN, is left out.  One row gives no block.
    Raises ValueError for a width of zero or less.
    """
    if width_ns <= 0:
        raise ValueError(f"expected a positive block width, found {width_ns} ns")
    if len(column) < 2:
        return Column(column.at_ns[:0], column.values[:0])
    first_ns = int(column.at_ns[0])
    # The last value counts for a typical step, so the grid ends one step later.
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


def autocorrelations(values: Values) -> Values:
    """Return the autocorrelation at each lag from 0 to the length − 1; zeros after lag 0 for a constant series."""
    count = len(values)
    deviations = values - values.mean()
    # The transform is fast for a length of few small factors.
    size = min(factor << (2 * count // factor).bit_length() for factor in (1, 3, 5, 9))
    spectrum = np.fft.rfft(deviations, size)
    covariances = np.fft.irfft(spectrum * np.conj(spectrum), size)[:count]
    # The deviations of a constant series are rounding errors, whose ratios mean nothing.
    if covariances[0] <= count * (1e-12 * float(np.abs(values).max(initial=0.0))) ** 2:
        alone = np.zeros(count)
        alone[0] = 1.0
        return alone
    return np.asarray(covariances / covariances[0], np.float64)


def effective_count(values: Values) -> float:
    """Return the number of independent values whose mean is as precise as the mean of this series, from 1 to its length.

    Geyer's initial positive sequence: autocorrelations are summed in pairs of lags until a pair is not positive.  All
    values of a constant series count.

    Raises ValueError for an empty series.

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
