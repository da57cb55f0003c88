"""Ratios of two variants from balanced quads of blocks: the median, the mean, the trimmed mean, and the outlying pairs.

A quad is ABBA or BAAB.  Each variant ran first in one pair of a quad, so a fixed effect of the position cancels.  Every
interval uses a long-run variance over quads, which dependence between quads widens.
"""

import math
from dataclasses import dataclass

import numpy as np

from annotate.compare.quads import Quads
from annotate.evidence import Values
from annotate.stats.intervals import Interval
from annotate.stats.long_run import long_run_variance
from annotate.stats.robust import autocorrelations

# The share that the trimmed mean cuts from each end of the quads, as bench() does with entries.
_TRIM_RATIO = 0.1
# The standard deviation over the robust one: 1 for normal noise, 1.5 for Student's t with three degrees of freedom.
_HEAVY_TAILS_RATIO = 2.0
_NORMAL_MAD = 1.4826  # the standard deviation of normal noise over its median absolute deviation
_NORMAL_HALF = 1.349  # the width of the middle half of normal noise over its standard deviation
_MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)  # the standard error of a median over that of a mean, for normal noise
_OUTLYING_SD = 5.0  # normal noise exceeds it once in two million pairs
_MOST_CORRELATION = 0.95  # with a higher correlation, a run of quads is one long wave, and no widening is enough
_FEWEST_QUADS = 6  # order statistics of fewer values cannot reach 95 %


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """One mean: its logarithm, its standard error, and the number of independent blocks behind the error."""

    log: float
    error: float
    blocks_count: int

    def interval(self, confidence: float) -> Interval:
        half = _quantile_t(confidence, self.blocks_count) * self.error if self.error else 0.0
        return as_ratio(Interval(self.log, self.log - half, self.log + half, confidence, self.blocks_count))


@dataclass(frozen=True, slots=True)
class BlockRatios:
    """The ratios of one pair of variants: log ratios of pairs, one row per quad, and their means.

    If ``is_trimmed``, tails are heavy, and the trimmed mean decides together with the median.  ``usual_logs`` hold NaN for
    outlying pairs; ``slower_ratio`` and ``faster_ratio`` are the shares of outlying pairs.
    """

    logs: Values
    plain_mean: MeanRatio
    trimmed_mean: MeanRatio
    is_trimmed: bool
    usual_logs: Values
    slower_ratio: float
    faster_ratio: float

    @property
    def mean(self) -> MeanRatio:
        """Return the mean that decides."""
        return self.trimmed_mean if self.is_trimmed else self.plain_mean

    def median(self, confidence: float) -> Interval:
        return median_interval(self.logs, confidence)

    def usual_median(self, confidence: float) -> Interval:
        """Return the median of the usual pairs, which a group of slow blocks alone cannot change."""
        return median_interval(self.usual_logs, confidence)


def block_ratios(quads: Quads, *, least_ratio: float) -> BlockRatios:
    """Return the ratios of usable quads; ``least_ratio`` is the smallest difference at which a pair counts as outlying.

    Raises ValueError: when no quad is given.
    """
    if not len(quads):
        raise ValueError("expected at least one quad, found none")
    a, b = quads.a_s.mean(axis=1), quads.b_s.mean(axis=1)
    logs = np.log(b) - np.log(a)
    plain, trimmed = _plain_mean(a, b), _trimmed_mean(logs)
    robust_sd = _NORMAL_MAD * float(np.median(np.abs(logs - np.median(logs))))
    # Tails that favour one variant are a real difference, so they stay in the mean.
    is_inside = plain.interval(0.95).low <= math.exp(trimmed.log) <= plain.interval(0.95).high
    pairs = quads.log_ratios
    low, high = _usual_range(pairs.ravel(), least_ratio)
    return BlockRatios(
        logs=pairs,
        plain_mean=plain,
        trimmed_mean=trimmed,
        is_trimmed=bool(logs.std() > _HEAVY_TAILS_RATIO * robust_sd) and is_inside,
        usual_logs=np.where((pairs >= low) & (pairs <= high), pairs, np.nan),
        slower_ratio=float((pairs > high).mean()),
        faster_ratio=float((pairs < low).mean()),
    )


def median_interval(logs: Values, confidence: float) -> Interval:
    """Return the median ratio of pairs, one row per quad (NaN: left out), with Woodruff's interval, infinite below six quads.

    The share of pairs below the median is a mean over quads, whose error turns into two quantiles of the pairs.

    Source: Woodruff, Journal of the American Statistical Association 47 (1952) 635-646.
    """
    centre = float(np.nanmedian(logs))
    below = np.sign(centre - logs) / 2
    error, blocks_count = _error(np.nan_to_num(below).mean(axis=1))
    error *= below.size / np.count_nonzero(np.isfinite(below))  # a pair left out does not count as a pair at the median
    reach = _quantile_t(confidence, blocks_count) * error if error else 0.0
    if len(logs) < _FEWEST_QUADS:
        return as_ratio(Interval(centre, -math.inf, math.inf, confidence, blocks_count))
    if reach >= 0.5:
        # No order statistic bounds the median of strongly dependent pairs; the error of the mean does.
        error, blocks_count = _error(np.nan_to_num(logs, nan=centre).mean(axis=1))
        half = _MEDIAN_OVER_MEAN * _quantile_t(confidence, blocks_count) * error
        return as_ratio(Interval(centre, centre - half, centre + half, confidence, blocks_count))
    low, high = (float(edge) for edge in np.nanquantile(logs, (0.5 - reach, 0.5 + reach)))
    return as_ratio(Interval(centre, min(centre, low), max(centre, high), confidence, blocks_count))


def as_ratio(interval: Interval) -> Interval:
    """Return an interval of log ratios as an interval of ratios; an overflowing edge becomes infinite."""
    with np.errstate(over="ignore"):
        centre, low, high = (float(np.exp(value)) for value in (interval.centre, interval.low, interval.high))
    return Interval(centre, low, high, interval.confidence, interval.blocks_count)


def _plain_mean(a: Values, b: Values) -> MeanRatio:
    ratio = float(b.mean() / a.mean())
    return MeanRatio(math.log(ratio), *_error(b / b.mean() - a / a.mean()))


def _trimmed_mean(logs: Values) -> MeanRatio:
    """Return the mean log ratio of the middle quads, with the error of winsorized quads (Tukey and McLaughlin 1963)."""
    cut = int(_TRIM_RATIO * len(logs))
    ordered = np.sort(logs)
    middle = ordered[cut : len(logs) - cut]
    error, blocks_count = _error(np.clip(logs, middle[0], middle[-1]))
    return MeanRatio(float(middle.mean()), error * len(logs) / len(middle), blocks_count)


def _error(values: Values) -> tuple[float, int]:
    """Return the standard error of the mean over quads, and the number of independent blocks behind the error.

    The error uses the larger of the long-run variance and that of a first-order autoregression, which few quads can show.
    Dependence can only widen the error: quads that alternate, as with alternating buffers, do not narrow it.

    Source: Marriott and Pope, Biometrika 41 (1954) 390-402 (the bias of an estimated autocorrelation).
    """
    count = len(values)
    if count < 2:
        return math.inf, 1
    variance, blocks_count = long_run_variance(values)
    next_one = float(autocorrelations(values)[1])
    next_one = min(_MOST_CORRELATION, max(0.0, next_one + (1.0 + 3.0 * next_one) / count))
    widening = (1.0 + next_one) / (1.0 - next_one)
    largest = max(variance, widening * float(values.var(ddof=1)))
    return math.sqrt(largest / count), max(2, min(blocks_count, round(count / widening)))


def _quantile_t(confidence: float, blocks_count: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(max(1, blocks_count - 1), 0.5 + 0.5 * confidence))


def _usual_range(logs: Values, least_ratio: float) -> tuple[float, float]:
    """Return the range of usual pairs; pairs outside deviate by more than noise.

    The range comes from the shortest interval with half of the pairs, which a second group of 45 % does not widen.
    """
    ordered = np.sort(logs)
    half = len(ordered) // 2
    widths = ordered[half:] - ordered[: len(ordered) - half]
    first = int(widths.argmin())
    middle = float(np.median(ordered[first : first + half + 1]))
    fence = max(_OUTLYING_SD * float(widths[first]) / _NORMAL_HALF, math.log1p(least_ratio))
    return middle - fence, middle + fence
