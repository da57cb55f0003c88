"""The SM clock while the GPU worked: as NVML's gauge shows it, in steps of 15 MHz, and as the measured process had it stamped.

The stamped clock is the one the SMs really ran at: of iterations, else of the whole window.
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
    """The gauge over the window but its first refresh, NaN while the driver calls the GPU idle; empty if it does not speak.

    It does not in a window shorter than three refreshes, nor when it was unobserved, or the GPU idle, half of the time.
    """
    if evidence.window.length_ns < 3 * evidence.trace.refresh_of_ns("sm_clock_mhz"):
        return EMPTY
    column = evidence.within("sm_clock_mhz")
    masks = np.nan_to_num(evidence.trace.at("event_reasons_mask", column.at_ns)).astype(np.int64)
    worked = Column(column.at_ns, np.where(masks & int(Reason.GPU_IDLE), np.nan, column.values))
    return worked if 2 * len(worked.observed) >= len(worked) else EMPTY


def median_mhz(column: Column) -> float | None:
    """The median of what was observed; None of nothing."""
    known = column.observed
    return centre(known.values) if len(known) else None


@dataclass(frozen=True, slots=True)
class Measured:
    """The mean true clock, the instants it stands for with their weights, and over how much time it was measured."""

    clock_mhz: float
    at_ns: Times
    weights: Values
    span_s: float
    iterations: bool  # of stamped iterations alone; else from the first stamp to the last, idle time included

    @property
    def fed_ratio(self) -> float:
        """The share of the time that stamped iterations fill; 0 where only the window's ends were stamped."""
        return float(self.weights.sum() / self.span_s) if self.iterations else 0.0

    @property
    def by(self) -> str:
        return "the stamped iterations" if self.iterations else "the window's stamps"


@kept
def measured(evidence: Evidence) -> Measured | None:
    """The true clock while the work ran; None without stamps, or with a declared clock that makes no sense."""
    return _of_iterations(evidence) or _of_window(evidence)


def _of_iterations(evidence: Evidence) -> Measured | None:
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


def _of_window(evidence: Evidence) -> Measured | None:
    told_mhz, told_s = amount(evidence.declared, "true_clock_mhz"), amount(evidence.declared, "stamped_s")
    if not told_mhz or not told_s or not LEAST_MHZ <= told_mhz <= MOST_MHZ:
        return None
    window = evidence.window
    # Where in the window the stamps lie was not declared: in its middle, and never beyond it.
    half_ns = int(min(told_s * 1e9, window.length_ns)) // 2
    middle_ns = (window.begin_ns + window.end_ns) // 2
    at_ns = np.arange(middle_ns - half_ns, middle_ns + half_ns, 10_000_000, dtype=np.int64)
    if not len(at_ns):
        return None
    return Measured(told_mhz, at_ns, np.ones(len(at_ns)), 2 * half_ns / 1e9, iterations=False)


def driver_clock_mhz(evidence: Evidence, true: Measured) -> float | None:
    """The mean of the driver's clock at the instants, and with the weights, of the true one."""
    lag_ns = evidence.trace.refresh_of_ns("sm_clock_mhz") * 3 // 4
    values = evidence.trace.at("sm_clock_mhz", true.at_ns + lag_ns)
    known = values > 0
    if 2.0 * true.weights[known].sum() < true.weights.sum() or not known.any():
        return None
    return float(np.average(values[known], weights=true.weights[known]))
