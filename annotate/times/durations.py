"""The iterations of a window in start order, and figures of their times that several rules use."""

import numpy as np
import numpy.typing as npt

from annotate.amount_words import duration_text
from annotate.answer import Unobserved
from annotate.evidence import EMPTY, Evidence, Timings, Values, WindowRecord
from annotate.evidence.asked import kept
from annotate.stats.robust import centre, effective_count, spread

# No SM clock lies outside this range.
LEAST_MHZ, MOST_MHZ = 1.0, 10_000.0
NO_ITERATION = Unobserved("no iteration was timed inside the window")
# Times farther from the window are clipped, so that differences of times stay within 64 bits.
_FAR_NS = 10**18


def usable(timings: Timings | None, window: WindowRecord) -> Timings | None:
    """Return times in start order, with NaN for an invalid duration or clock, or None for absent or inconsistent times.

    The measured program may be wrong, so this function removes values that would overflow the arithmetic of rules.
    """
    if timings is None or not 1 <= timings.calls_count <= 10**9:
        return None
    clock = timings.sm_clock_mhz
    if len(timings.at_ns) != len(timings.took_s) or (clock is not None and len(clock) != len(timings.at_ns)):
        return None
    at_ns = np.clip(timings.at_ns, window.begin_ns - _FAR_NS, window.end_ns + _FAR_NS)
    # An entry takes less than a million seconds.
    took_s = np.where(timings.timed & (timings.took_s < 1e6 / timings.calls_count), timings.took_s, np.nan)
    if clock is not None:
        clock = np.where((clock >= LEAST_MHZ) & (clock <= MOST_MHZ), clock, np.nan)
    return Timings(at_ns, took_s, clock, timings.calls_count).in_order()


@kept
def inside(evidence: Evidence) -> Timings:
    """Return the iterations that began inside the window, in order, without invalid durations; empty without times."""
    timings = evidence.timings
    if timings is None:
        return Timings(EMPTY.at_ns, EMPTY.values)
    kept = timings.timed & (timings.at_ns >= evidence.window.begin_ns) & (timings.at_ns < evidence.window.end_ns)
    return (timings if kept.all() else timings.pick(kept)).in_order()


def floor_s(median_s: float) -> float:
    """Return the least plausible spread: times are quantised, and more than half of the times may be equal."""
    # 0.25 µs is half of the coarsest tick of CUDA's events.
    return max(0.25e-6, 1e-3 * median_s)


def usual_s(took_s: Values) -> tuple[float, float]:
    """Return the median of durations, and their robust standard deviation."""
    median_s = centre(took_s)
    return median_s, spread(took_s, floor=floor_s(median_s))


def worth_count(values: Values) -> float:
    """Return the ``effective_count`` of a series of any length; a long series is averaged in blocks first."""
    count = len(values)
    # The autocorrelation of more than 4096 values would take too long.
    size = -(-count // 4096)
    if size == 1:
        return effective_count(values)
    blocks = values[: count // size * size].reshape(-1, size).mean(axis=1)
    varies = float(blocks.var())
    return float(np.clip(effective_count(blocks) * float(values.var()) / varies, 1.0, count)) if varies > 0.0 else float(count)


def every_count(indices: npt.NDArray[np.intp], *, share_ratio: float = 0.5) -> int | None:
    """Return the N of "every Nth iteration" if ``share_ratio`` of at least five indices are N > 1 apart, else None."""
    apart = np.diff(indices)
    if len(apart) < 4:
        return None
    usual = int(centre(apart))
    # A distance of 1 is a run of iterations, not a rhythm.
    return usual if usual > 1 and float((apart == usual).mean()) >= share_ratio else None


def readable(seconds: float) -> str:
    """Return a duration as text: three digits and a fitting unit."""
    return duration_text(seconds, 3)


def readable_pair(first_s: float, second_s: float) -> tuple[str, str]:
    """Return two durations as text, with three digits, or with up to six if fewer would make them look equal."""
    for digits_count in (3, 4, 5, 6):
        first, second = duration_text(first_s, digits_count), duration_text(second_s, digits_count)
        if first != second:
            break
    return first, second
