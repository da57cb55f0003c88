"""Records of a timed pair of kernels, for counters, roofline, reasons and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SideTimes:
    """Times of one side in seconds per call, with the clock and the bytes of its traffic."""

    calls_count: int
    median_s: float
    mean_s: float
    at_one_clock_s: float | None  # None if the true clock was not stamped
    true_clock_mhz: float | None
    input_bytes: int  # bytes that a call reads, each once; all inputs of two Python functions
    output_bytes: int  # bytes that a call writes, each once; 0 for two Python functions


@dataclass(frozen=True, slots=True)
class TimedPair:
    """The decision between two kernels, with the times."""

    decision: str  # FASTER, SLOWER, SAME, INCONCLUSIVE or INCOMPARABLE, for B against A
    reason: str  # empty for FASTER, SLOWER and SAME
    ratio: float | None  # A's time over B's, such as 1.142 for 14.2 % faster; None when INCOMPARABLE, or for too few pairs
    ratio_low: float | None
    ratio_high: float | None
    own_clock_ratio: float | None  # A's time over B's, each at its own clock
    verdict: str  # the status of the comparison's window, empty without a window; SIMULATED for simulated times
    a: SideTimes | None
    b: SideTimes | None
    sizes: Mapping[str, int] = field(default_factory=dict)
    launches: tuple[str, str] = ("", "")
    cache: str = ""  # cold or warm: the L2 cache that each call found
    pairs_count: int = 0
    notes: tuple[str, ...] = ()  # from compare(), such as the share of launches in a time


def incomparable(reason: str) -> TimedPair:
    """Return the record of kernels that must not be timed against each other."""
    return TimedPair("INCOMPARABLE", reason, None, None, None, None, "", None, None)
