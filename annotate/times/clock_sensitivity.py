"""The sensitivity of a kernel's time to the true SM clock, and the kernel's time at a stated clock.

Time is proportional to the clock to the power −β.  The exponent β is near 1 for a kernel limited by arithmetic, near 0 for a
kernel limited by memory.  Under a power cap the clock varies, and short estimates vary with the clock; at one clock the
estimates agree.  ``Corrected`` holds the measured time next to the corrected one.  If a correction would mislead, the
answer is a ``NoFit`` with the reason.
"""

from dataclasses import dataclass

import numpy as np

from annotate.evidence import Timings, Values
from annotate.stats.intervals import batch_interval
from annotate.stats.line import robust_line
from annotate.stats.robust import centre, row_medians, spread
from annotate.times.cold import cold

_CONFIDENCE = 0.95
# Residuals of log times below a thousandth are errors of the timer.
_LOG_FLOOR = 1e-3
_FEWEST_COUNT = 60  # fewer give no useful interval
_SHORTEST_KERNEL_S = 50e-6  # below this, gaps between launches hide the effect of the clock
_LEAST_CORRELATION = 0.9  # a weaker one leaves more than 19 % of the variance unexplained
_SLOW_SD = 10.0  # an iteration farther above the fit was slow for another reason


@dataclass(frozen=True, slots=True)
class NoFit:
    """The reason why there is no corrected time: one line, for people."""

    reason: str


_UNSTAMPED = NoFit("No warm iteration carries its clock: nothing stamped them.")


@dataclass(frozen=True, slots=True)
class Corrected:
    """The time at a stated clock with its interval, and the measured time; without a ``batch_interval`` its ends are None."""

    time_s: float
    low_s: float | None
    high_s: float | None
    raw_s: float


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The exponent β with its 95 % interval, and the range of the fitted clocks.

    ``r`` is the correlation of log time with log clock over the fitted medians of up to 500 blocks.
    ``explained_ratio`` is the clock's share of the variance of all warm iterations, including the ``slow_count`` that were
    slow for another reason.  ``cold_count`` of ``count`` iterations were trimmed.
    """

    beta: float
    beta_low: float
    beta_high: float
    r: float
    explained_ratio: float
    clock_low_mhz: float
    clock_high_mhz: float
    cold_count: int
    count: int
    slow_count: int = 0

    def factor(self, sm_clock_mhz: Values, mhz: float) -> Values:
        """Return the factors that convert times at these clocks to the clock ``mhz``."""
        return np.asarray((sm_clock_mhz / mhz) ** self.beta, np.float64)

    def at_clock(self, timings: Timings, mhz: float) -> Corrected | NoFit:
        """Return the median time of these iterations at that clock; both figures leave out cold iterations.

        The iterations need not be the fitted ones, but must be of the same kernel and at fitted clocks.
        """
        if not self.clock_low_mhz <= mhz <= self.clock_high_mhz:
            return NoFit(f"{mhz:.0f} MHz lies outside the fitted clocks, {self._range}.")
        warm, _ = warm_and_stamped(timings)
        if warm is None or warm.sm_clock_mhz is None:
            return _UNSTAMPED
        seen_mhz = centre(warm.sm_clock_mhz)
        if not self.clock_low_mhz <= seen_mhz <= self.clock_high_mhz:
            return NoFit(f"These iterations ran at {seen_mhz:.0f} MHz, outside the fitted clocks, {self._range}.")
        corrected_s = warm.took_s * self.factor(warm.sm_clock_mhz, mhz)
        time_s, raw_s = centre(corrected_s), centre(warm.took_s)
        interval = batch_interval(warm.at_ns, corrected_s, confidence=_CONFIDENCE)
        if interval is None:
            return Corrected(time_s, None, None, raw_s)
        # The error of β counts in proportion to the distance between the clocks.
        moved = abs(float(np.log(seen_mhz / mhz)))
        low = float(np.hypot(np.log(time_s / interval.low), (self.beta - self.beta_low) * moved))
        high = float(np.hypot(np.log(interval.high / time_s), (self.beta_high - self.beta) * moved))
        return Corrected(time_s, time_s * float(np.exp(-low)), time_s * float(np.exp(high)), raw_s)

    @property
    def _range(self) -> str:
        return f"{self.clock_low_mhz:.0f}–{self.clock_high_mhz:.0f} MHz"


def warm_and_stamped(timings: Timings) -> tuple[Timings | None, int]:
    """Return the warm iterations with a stamped clock, or None without any, and the number of cold iterations."""
    timed = timings.pick(timings.timed)
    cold_ones, clock_mhz = cold(timed.at_ns, timed.took_s), timed.sm_clock_mhz
    kept = ~cold_ones & np.isfinite(clock_mhz) & (clock_mhz > 0.0) if clock_mhz is not None else np.zeros(0, np.bool_)
    return timed.pick(kept) if kept.any() else None, int(cold_ones.sum())


def sensitivity(timings: Timings) -> Sensitivity | NoFit:
    """Fit log time on log clock, robustly against outliers, or return the reason why no fit is possible.

    The line is Huber's, through medians of consecutive blocks.  Autocorrelation widens the interval (``annotate.stats.line``).
    """
    warm, cold_count = warm_and_stamped(timings) if timings.sm_clock_mhz is not None else (None, 0)
    if warm is None or warm.sm_clock_mhz is None:
        return _UNSTAMPED
    took_s, clock_mhz = warm.took_s, warm.sm_clock_mhz
    if len(took_s) < _FEWEST_COUNT:
        return NoFit(f"{len(took_s)} warm iterations carry their clock, and {_FEWEST_COUNT} are needed for a fit.")
    usual_s = centre(took_s)
    if usual_s < _SHORTEST_KERNEL_S:
        return NoFit(
            f"One call takes {usual_s * 1e6:.0f} µs: below {_SHORTEST_KERNEL_S * 1e6:.0f} µs launch gaps drown the clock."
        )
    # The 5th and the 95th percentile.
    ranks = (len(clock_mhz) // 20, len(clock_mhz) - 1 - len(clock_mhz) // 20)
    low_mhz, high_mhz = np.partition(clock_mhz, ranks)[list(ranks)].tolist()
    if high_mhz < 1.01 * low_mhz:  # the correction of a smaller change gains nothing
        moved = high_mhz / low_mhz - 1.0
        return NoFit(f"The clock stayed within {moved:.1%} ({low_mhz:.0f}–{high_mhz:.0f} MHz): nothing to correct.")

    # Medians of up to 500 blocks reduce the noise of the clocks and keep the fit fast.
    length = -(-len(took_s) // 500)
    line = robust_line(
        np.log(row_medians(clock_mhz, length)), np.log(row_medians(took_s, length)), high_sd=_SLOW_SD, floor=_LOG_FLOOR
    )
    if not -line.r >= _LEAST_CORRELATION:
        return NoFit(
            f"Time follows the clock too loosely (r {line.r:.2f}, needed −{_LEAST_CORRELATION}): something else changes the time."
        )
    beta, error = -line.slope, line.slope_error(confidence=_CONFIDENCE)
    if error is None or error > 0.3:  # too few swings of the clock make a wide interval
        return NoFit("The clock swung too rarely to separate its effect from other drift.")
    if beta - error > 1.2:  # a kernel follows the clock at most in proportion, apart from the error of the fit
        return NoFit(f"Time changed as the clock to the power −{beta:.1f}, steeper than any kernel: it had another cause.")
    # Readers expect the noise of single iterations: these are the residuals of all warm ones, not of block medians.
    logs = np.log(took_s)
    residuals = logs - line.at(np.log(clock_mhz))
    slow = residuals > _SLOW_SD * spread(residuals, floor=_LOG_FLOOR)
    return Sensitivity(
        beta=beta,
        beta_low=beta - error,
        beta_high=beta + error,
        r=line.r,
        explained_ratio=float(np.clip(1.0 - residuals.var() / logs.var(), 0.0, 1.0)),
        clock_low_mhz=float(np.exp(line.x.min())),
        clock_high_mhz=float(np.exp(line.x.max())),
        cold_count=cold_count,
        count=len(took_s) + cold_count,
        slow_count=int(slow.sum()),
    )
