"""The SM clock while the GPU worked, from NVML's gauge (in steps of 15 MHz) and from stamps of the measured process.

The stamped clock is the true clock of the SMs during the iterations, else during the whole window.
"""

from dataclasses import dataclass

import numpy as np

from annotate.declared import amount
from annotate.evidence import EMPTY, Column, Evidence, Reason, Times, Values
from annotate.evidence.asked import kept
from annotate.stats.robust import centre
from annotate.times.durations import LEAST_MHZ, MOST_MHZ, inside


@kept
def working(evidence: Evidence) -> Column:
    """Return the gauge over the window without its first refresh, NaN while the driver reports the GPU idle.

    Return an empty column below three refreshes, or if more than half of the values are unobserved or idle.
    """
    if evidence.window.length_ns < 3 * evidence.trace.refresh_of_ns("sm_clock_mhz"):
        return EMPTY
    column = evidence.within("sm_clock_mhz")
    masks = np.nan_to_num(evidence.trace.at("event_reasons_mask", column.at_ns)).astype(np.int64)
    worked = Column(column.at_ns, np.where(masks & int(Reason.GPU_IDLE), np.nan, column.values))
    return worked if 2 * len(worked.observed) >= len(worked) else EMPTY


def median_mhz(column: Column) -> float | None:
    """Return the median of the observed values; None without any."""
    known = column.observed
    return centre(known.values) if len(known) else None


@dataclass(frozen=True, slots=True)
class Measured:
    """The mean true clock, its sampling times with weights, and the span over which it was measured."""

    clock_mhz: float
    at_ns: Times
    weights: Values
    span_s: float
    iterations: bool  # True: stamped iterations only; False: from first to last stamp, idle time included

    @property
    def fed_ratio(self) -> float:
        """Return the share of the span that stamped iterations fill; 0 if only the window's ends were stamped."""
        return float(self.weights.sum() / self.span_s) if self.iterations else 0.0

    @property
    def by(self) -> str:
        return "the stamped iterations" if self.iterations else "the window's stamps"


@kept
def measured(evidence: Evidence) -> Measured | None:
    """Return the true clock while the work ran; None without stamps or with an implausible declared clock."""
    return _measure_iterations(evidence) or _measure_window(evidence)


def _measure_iterations(evidence: Evidence) -> Measured | None:
    timings = inside(evidence)
    clock_mhz = timings.sm_clock_mhz
    if clock_mhz is None:
        return None
    known = (clock_mhz >= LEAST_MHZ) & (clock_mhz <= MOST_MHZ)
    if not known.any():
        return None
    at_ns, took_s, clock_mhz = timings.at_ns[known], timings.took_s[known] * timings.calls_count, clock_mhz[known]
    middle_ns = at_ns + (took_s * 5e8).astype(np.int64)
    span_s = float(at_ns[-1] - at_ns[0]) / 1e9 + float(took_s[-1])
    return Measured(float(np.average(clock_mhz, weights=took_s)), middle_ns, took_s, span_s, iterations=True)


def _measure_window(evidence: Evidence) -> Measured | None:
    declared_mhz, declared_s = amount(evidence.declared, "true_clock_mhz"), amount(evidence.declared, "stamped_s")
    if not declared_mhz or not declared_s or not LEAST_MHZ <= declared_mhz <= MOST_MHZ:
        return None
    window = evidence.window
    # The positions of the stamps were not declared: assume the middle of the window.
    half_ns = int(min(declared_s * 1e9, window.length_ns)) // 2
    middle_ns = (window.begin_ns + window.end_ns) // 2
    at_ns = np.arange(middle_ns - half_ns, middle_ns + half_ns, 10_000_000, dtype=np.int64)
    if not len(at_ns):
        return None
    return Measured(declared_mhz, at_ns, np.ones(len(at_ns)), 2 * half_ns / 1e9, iterations=False)


def driver_clock_mhz(evidence: Evidence, true: Measured) -> float | None:
    """Return the driver's mean clock with the times and weights of the true clock; None if most of the weight is unknown."""
    # The gauge lags: it fits stamped clocks best three quarters of a refresh later, as in ``clock_blocks``.
    lag_ns = evidence.trace.refresh_of_ns("sm_clock_mhz") * 3 // 4
    values = evidence.trace.at("sm_clock_mhz", true.at_ns + lag_ns)
    known = values > 0
    if 2.0 * true.weights[known].sum() < true.weights.sum() or not known.any():
        return None
    return float(np.average(values[known], weights=true.weights[known]))
