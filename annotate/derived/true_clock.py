"""The clock the SMs really ran at, as far as the measured process had it stamped: of iterations, else of the whole window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from annotate.declared import amount
from annotate.evidence import Evidence, Times, Values
from annotate.times.durations import inside

# No SM ever ran outside these: a stamp that says so was misread.
_LEAST_MHZ, _MOST_MHZ = 1.0, 10_000.0
# Instants at which a clock known only as the mean between two stamps is set beside another.
_GRID_NS = 10_000_000


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


def measured(evidence: Evidence) -> Measured | None:
    """The true clock while the work ran; None where nobody stamped it, or declared nonsense about it."""
    return _of_iterations(evidence) or _of_window(evidence)


def _of_iterations(evidence: Evidence) -> Measured | None:
    timings = inside(evidence)
    if timings.sm_clock_mhz is None:
        return None
    clock_mhz = timings.sm_clock_mhz
    known = (clock_mhz >= _LEAST_MHZ) & (clock_mhz <= _MOST_MHZ)
    if not known.any():
        return None
    at_ns, took_s, clock_mhz = timings.at_ns[known], timings.took_s[known] * timings.calls_count, clock_mhz[known]
    middle_ns = at_ns + (took_s * 5e8).astype(np.int64)
    span_s = float(at_ns[-1] - at_ns[0]) / 1e9 + float(took_s[-1])
    return Measured(float(np.average(clock_mhz, weights=took_s)), middle_ns, took_s, span_s, iterations=True)


def _of_window(evidence: Evidence) -> Measured | None:
    told_mhz, told_s = amount(evidence.declared, "true_clock_mhz"), amount(evidence.declared, "stamped_s")
    if not told_mhz or not told_s or not _LEAST_MHZ <= told_mhz <= _MOST_MHZ:
        return None
    window = evidence.window
    # Where in the window the stamps lie was not declared: in its middle, and never beyond it.
    half_ns = int(min(told_s * 1e9, window.length_ns)) // 2
    middle_ns = (window.begin_ns + window.end_ns) // 2
    at_ns = np.arange(middle_ns - half_ns, middle_ns + half_ns, _GRID_NS, dtype=np.int64)
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
