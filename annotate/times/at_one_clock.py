"""The times of a window's entries, converted to one clock."""

from dataclasses import dataclass

import numpy as np

from annotate.evidence import Times, Timings, Values
from annotate.stats.robust import centre, quantiles
from annotate.times.clock_sensitivity import NoFit, Sensitivity

STILL_RATIO = 0.01  # a clock that varies by less allows no fit of an exponent, and needs none
FAR_RATIO = 0.25  # greatest logarithm of a clock ratio over which the exponent extrapolates
_LEAST_STAMPED_RATIO = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class OneClockTimes:
    """The times in start order, and the clock to which the times are converted.

    ``clock_mhz`` is None if the times could not be converted; they are then as measured.  ``fit`` is None without a
    conversion, for a loose exponent, and for a constant clock, which needs no exponent.
    """

    at_ns: Times
    took_s: Values
    clock_mhz: float | None = None
    fit: Sensitivity | None = None
    refusal: str = ""  # reason why the times were not converted

    @property
    def is_at_one_clock(self) -> bool:
        return self.clock_mhz is not None

    def why_not_at(self, mhz: float) -> str:
        """Return the reason why no time at this other clock is known; empty if the time is known."""
        if self.clock_mhz is None:
            return self.refusal[:1].lower() + self.refusal[1:].rstrip(".")
        if self.fit is None:
            return f"the clock stayed at {self.clock_mhz:.0f} MHz, so the effect of another clock is unknown"
        is_far = abs(float(np.log(mhz / self.clock_mhz))) > FAR_RATIO
        return f"the window ran too far away, at {self.clock_mhz:.0f} MHz" if is_far else ""

    def moved_ratio(self, mhz: float) -> float:
        """Return the relative error of a time converted to this clock, due to the exponent's uncertainty; 0 without a fit."""
        if self.fit is None or self.clock_mhz is None:
            return 0.0
        half = max(self.fit.beta_high - self.fit.beta, self.fit.beta - self.fit.beta_low)
        return half * abs(float(np.log(mhz / self.clock_mhz)))

    def factor(self, mhz: float) -> float:
        """Return the factor that converts a time to another clock; 1 without a fit."""
        if self.fit is None or self.clock_mhz is None:
            return 1.0
        return float((self.clock_mhz / mhz) ** self.fit.beta)


def loosely_at_one_clock(timings: Timings) -> OneClockTimes | None:
    """Return stamped times at their median clock, converted by a least-squares exponent; None if too few have a clock.

    The exponent is limited to 0 to 1, because a kernel follows the clock at most in proportion.  Variation that such an
    exponent leaves has another cause than the clock.
    """
    clock_mhz = timings.sm_clock_mhz
    known = np.isfinite(clock_mhz) & (clock_mhz > 0.0) & (timings.took_s > 0.0) if clock_mhz is not None else None
    if clock_mhz is None or known is None or not known.any() or float(known.mean()) < _LEAST_STAMPED_RATIO:
        return None
    clocks, logs = np.log(clock_mhz[known]), np.log(timings.took_s[known])
    about = clocks - clocks.mean()
    scatter = float(np.square(about).sum())
    beta = float(np.clip(-float((about * logs).sum()) / scatter, 0.0, 1.0)) if scatter > 0.0 else 0.0
    middle_mhz = centre(clock_mhz[known])
    took_s = timings.took_s[known] * (clock_mhz[known] / middle_mhz) ** beta
    return OneClockTimes(timings.at_ns[known], np.asarray(took_s, np.float64), middle_mhz)


def one_clock_times(timings: Timings, fit: Sensitivity | NoFit) -> OneClockTimes:
    """Return stamped times at their median clock if the times follow the clock or the clock was constant.

    Other times stay as measured.  A conversion by the fit leaves out entries without a stamp, because their clock is unknown.
    """
    clock_mhz = timings.sm_clock_mhz
    known = np.isfinite(clock_mhz) if clock_mhz is not None else np.zeros(len(timings.at_ns), np.bool_)
    if clock_mhz is None or not known.any() or float(known.mean()) < _LEAST_STAMPED_RATIO:
        if clock_mhz is None or not known.any():
            return OneClockTimes(timings.at_ns, timings.took_s, refusal="nothing stamped the clock")
        return OneClockTimes(timings.at_ns, timings.took_s, refusal=f"only {known.mean():.0%} of the times carry their clock")
    middle_mhz = centre(clock_mhz[known])
    if isinstance(fit, Sensitivity):
        took_s = timings.took_s[known] * fit.factor(clock_mhz[known], middle_mhz)
        return OneClockTimes(timings.at_ns[known], np.asarray(took_s, np.float64), middle_mhz, fit)
    low_mhz, high_mhz = quantiles(clock_mhz[known], 0.05, 0.95)
    if high_mhz >= (1.0 + STILL_RATIO) * low_mhz:
        return OneClockTimes(timings.at_ns, timings.took_s, refusal=fit.reason)
    return OneClockTimes(timings.at_ns, timings.took_s, middle_mhz)
