"""Intervals that keep their coverage for autocorrelated values.

Random numbers are seeded: the same values give the same interval on any machine.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.evidence import Times, Values
from annotate.stats.robust import autocorrelations, centre


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval around a centre.

    The limits are infinite if there are too few blocks to exclude anything.

    Raises nothing.

    Attributes:
        centre: Estimate, in the unit of the values.
        low: Lower limit, in the same unit.
        high: Upper limit, in the same unit.
        confidence: Confidence, a ratio: 0.95 is 95 %.
        blocks_count: Number of batches, pairs or runs that the interval rests on.

    Example:
        >>> from annotate.stats.intervals import Interval
        >>> interval = Interval(centre=0.9, low=0.85, high=0.95, confidence=0.95, blocks_count=30)
        >>> interval.excludes(1.0), interval.within(0.8, 1.0)
        (True, True)
    """

    centre: float
    low: float
    high: float
    confidence: float
    blocks_count: int

    @property
    def half_width_ratio(self) -> float:
        """Return half the width as a ratio of the centre."""
        return 0.5 * (self.high - self.low) / abs(self.centre) if self.centre else float("inf")

    def excludes(self, value: float) -> bool:
        """Return True if the value lies outside the interval.

        Args:
            value: Value in the unit of the centre.

        Raises nothing.
        """
        return not self.low <= value <= self.high

    def within(self, low: float, high: float) -> bool:
        """Return True if the whole interval lies between two values.

        Args:
            low: Lower value in the unit of the centre.
            high: Upper value in the same unit.

        Raises nothing.
        """
        return low <= self.low and self.high <= high


def batch_interval(
    at_ns: Times,
    took_s: Values,
    *,
    confidence: float = 0.95,
) -> Interval | None:
    """Return the median time with a t interval from the medians of contiguous batches.

    The times are in the order of execution.  Return None for fewer than 80 iterations, for less than 0.4 s, or if batches
    still correlate when fewer than eight would remain.

    Source: Flyvbjerg & Petersen, Journal of Chemical Physics 91 (1989) 461-466.
    """
    if not len(took_s):
        return None
    span_s = float(at_ns[-1] - at_ns[0]) / 1e9 + float(took_s[-1])
    # At most 20 batches, of at least ten iterations and 50 ms each.
    count = min(20, len(took_s) // 10, int(span_s / 0.05))
    # Fewer than eight batches do not show their scatter.
    while count >= 8:
        medians = _batch_medians(took_s, count)
        # Batches with a higher correlation are not independent, so their length is doubled.
        if autocorrelations(medians)[1] <= 0.3:
            return _t_interval(centre(took_s), medians, confidence)
        count //= 2
    return None


def _batch_medians(values: Values, count: int) -> Values:
    """Return the medians of contiguous batches of equal length; the last batch includes the remainder."""
    length = len(values) // count
    medians = np.median(values[: count * length].reshape(count, length), axis=1)
    medians[-1] = np.median(values[(count - 1) * length :])
    return np.asarray(medians, np.float64)


def _t_interval(middle: float, medians: Values, confidence: float) -> Interval:
    from scipy.special import stdtrit

    count = len(medians)
    half = float(stdtrit(count - 1, 0.5 + 0.5 * confidence) * medians.std(ddof=1) / np.sqrt(count))
    about = float(medians.mean())
    # The mean of the batches and the median of all values differ a little for skewed times: the interval holds both.
    return Interval(middle, min(middle, about - half), max(middle, about + half), confidence, count)


def median_interval(values: Values, confidence: float = 0.95) -> Interval:
    """Return the median of independent values with its interval.

    Raises ValueError for an empty series.

    Two order statistics are the limits, so no distribution is assumed.  The limits are infinite for fewer than six values
    (at 95 %).
    """
    from scipy.special import bdtr

    middle, count = centre(values), len(values)
    # The largest rank for which P(X <= rank - 1), X ~ B(n, 1/2), is at most half of the error probability.
    below = bdtr(np.arange(count // 2 + 1, dtype=np.float64), count, 0.5)
    rank = int(np.searchsorted(below, 0.5 * (1.0 - confidence), side="right"))
    if rank == 0:
        return Interval(middle, -np.inf, np.inf, confidence, count)
    ordered = np.sort(values)
    return Interval(middle, float(ordered[rank - 1]), float(ordered[count - rank]), confidence, count)


def ratio_interval(
    log_ratios: Values,
    *,
    confidence: float = 0.95,
    correlation: Annotated[float, "from this lag-1 autocorrelation on, pairs are resampled in blocks"] = 0.2,
    resamples_count: Annotated[int, "the random error of a 95 % limit is a few hundredths of the width"] = 1000,
) -> Interval:
    """Return the median log ratio with its interval: from order statistics, or a bootstrap for 12 or more correlated pairs.

    The pairs are in the order of execution.  If consecutive pairs correlate, order statistics cover far less than 95 %.

    Raises ValueError without pairs.

    Source: Politis & White, Econometric Reviews 23 (2004) 53-70.
    """
    from scipy.special import ndtri, stdtrit

    plain = median_interval(log_ratios, confidence)
    count = len(log_ratios)
    if count < 12 or autocorrelations(log_ratios)[1] < correlation:
        return plain
    length = block_length_count(log_ratios)
    rng = np.random.default_rng(20261121)
    starts = rng.integers(0, count, (resamples_count, -(-count // length)))
    index = (starts[:, :, np.newaxis] + np.arange(length)).reshape(resamples_count, -1)[:, :count] % count
    medians = np.median(log_ratios[index], axis=1)
    tail = 0.5 * (1.0 - confidence)
    low, high = (float(edge) for edge in np.quantile(medians, [tail, 1.0 - tail]))
    # Few blocks understate the scatter, as few values do.
    blocks_count = -(-count // length)
    wider = float(stdtrit(blocks_count - 1, 1.0 - tail) / ndtri(1.0 - tail)) * np.sqrt(blocks_count / (blocks_count - 1))
    low, high = plain.centre - wider * (plain.centre - low), plain.centre + wider * (high - plain.centre)
    # Correlation can only widen the interval.
    return Interval(plain.centre, min(plain.low, low), max(plain.high, high), confidence, blocks_count)


def block_length_count(values: Values) -> int:
    """Return the block length of a circular block bootstrap: Politis & White's automatic choice."""
    count = len(values)
    correlations = autocorrelations(values)
    # Find the first lag after which several correlations in a row are insignificant, and sum up to twice that lag.
    quiet = max(5, int(np.log10(count)))
    small = np.abs(correlations[1:]) < 2.0 * np.sqrt(np.log10(count) / count)
    runs = np.flatnonzero(np.convolve(small, np.ones(quiet), mode="valid") >= quiet)
    last = int(runs[0]) if len(runs) else len(small)
    reach = min(2 * max(1, last), count - 1)
    lags = np.arange(1, reach + 1)
    weighted = np.minimum(2.0 * (1.0 - lags / reach), 1.0) * correlations[1 : reach + 1]
    spectrum = 1.0 + 2.0 * float(weighted.sum())
    slope = 2.0 * float((lags * weighted).sum())
    if spectrum <= 0.0:
        return 1
    length: float = (1.5 * (slope / spectrum) ** 2 * count) ** (1.0 / 3.0)
    return max(1, min(round(length), count // 8, int(3.0 * count**0.5)))
