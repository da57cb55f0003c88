"""The times of a window's entries at one clock: each multiplied by what the clock did to it."""

from dataclasses import dataclass

import numpy as np

from annotate.evidence import Times, Timings, Values
from annotate.stats.robust import centre, quantiles
from annotate.times.clock_sensitivity import NoFit, Sensitivity

STILL_RATIO = 0.01  # an uncapped H200 moves 0.5 %: within 1 % no exponent can be fitted, and none is needed
_LEAST_STAMPED_RATIO = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class OneClockTimes:
    """The times in the order of their begins, and the clock at which they stand.

    ``clock_mhz`` is None where nothing puts them at one clock: then they are as measured, and follow the clock.  ``fit`` is
    None where the clock stood still, which needs no exponent.
    """

    at_ns: Times
    took_s: Values
    clock_mhz: float | None = None
    fit: Sensitivity | None = None
    refusal: str = ""  # why they are at no clock

    @property
    def is_at_one_clock(self) -> bool:
        return self.clock_mhz is not None

    def moved_ratio(self, mhz: float) -> float:
        """Return the relative error of a time moved to this clock, from what is not known of the exponent."""
        if self.fit is None or self.clock_mhz is None:
            return 0.0
        half = max(self.fit.beta_high - self.fit.beta, self.fit.beta - self.fit.beta_low)
        return half * abs(float(np.log(mhz / self.clock_mhz)))

    def factor(self, mhz: float) -> float:
        """Return what each time is multiplied by to stand at another clock."""
        if self.fit is None or self.clock_mhz is None:
            return 1.0
        return float((self.clock_mhz / mhz) ** self.fit.beta)


def one_clock_times(timings: Timings, fit: Sensitivity | NoFit) -> OneClockTimes:
    """Return the times at their own median clock where they were stamped and either follow the clock or it stood still.

    Entries without a stamp are left out if the clock moved: they would stand at another clock.
    """
    clock_mhz = timings.sm_clock_mhz
    known = np.isfinite(clock_mhz) if clock_mhz is not None else np.zeros(len(timings.at_ns), np.bool_)
    if clock_mhz is None or not known.any() or float(known.mean()) < _LEAST_STAMPED_RATIO:
        if clock_mhz is None or not known.any():
            return OneClockTimes(timings.at_ns, timings.took_s, refusal="nothing stamped the clock")
        return OneClockTimes(timings.at_ns, timings.took_s, refusal=f"{known.mean():.0%} of the times carry their clock")
    middle_mhz = centre(clock_mhz[known])
    if isinstance(fit, Sensitivity):
        took_s = timings.took_s[known] * fit.factor(clock_mhz[known], middle_mhz)
        return OneClockTimes(timings.at_ns[known], np.asarray(took_s, np.float64), middle_mhz, fit)
    low_mhz, high_mhz = quantiles(clock_mhz[known], 0.05, 0.95)
    if high_mhz >= (1.0 + STILL_RATIO) * low_mhz:
        return OneClockTimes(timings.at_ns, timings.took_s, refusal=fit.reason)
    return OneClockTimes(timings.at_ns, timings.took_s, middle_mhz)
