"""The SM clock of a window in blocks of equal length: from stamps where a block has them, else from the driver's gauge."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from annotate.derived.busy import has_reason
from annotate.derived.held import is_mostly_capped
from annotate.derived.sm_clock import driver_clock_mhz, measured
from annotate.evidence import Evidence, Reason, Times, Timings, Values
from annotate.stats.change_points import PENALTY, SeriesLevel, find_levels, swing_variance
from annotate.stats.long_run import cycle_variance
from annotate.stats.robust import centre
from annotate.times.durations import inside

# The power controller of an H200 swings with this period, which was not measured on other models.
CYCLE_NS = 1_000_000_000
_LEAST_MHZ, _MOST_MHZ = 1.0, 10_000.0
_ENTRIES_COUNT = 3  # fewest per block: if fewer than 30 fill a refresh, each takes 3 ms or more and is stamped to 0.03 %
_MOST_BLOCKS = 600
_GRID_NS = 10_000_000
_OVERLAP_COUNT = 3  # blocks with both clocks that give the gauge its scale
# The usual penalty allows for a variance that is understated.  With 5, no clean one of 593 simulated windows has levels beyond
# 1 %, and 95 % of steps of 4.4 % are found; with 7, 88 %.
_SWING_PENALTY = 5.0
_STEADY_RATIO = 1e-4  # the stamps' noise, the least noise of a clock's logarithm


@dataclass(frozen=True, eq=False)
class ClockBlocks:
    """Blocks that fill a window: start times, mean clocks (NaN if unknown), and the blocks whose clock is stamped.

    ``scale`` multiplies the driver's clock in blocks without stamps.  ``swings`` is True if the power cap held most of the
    time, so that its controller changed the clock.
    """

    at_ns: Times
    width_ns: int
    mhz: Values
    stamped: npt.NDArray[np.bool_]
    scale: float = 1.0
    swings: bool = False

    @cached_property
    def logs(self) -> Values:
        """Return the logarithm of each known block's clock."""
        return np.asarray(np.log(self.mhz[self.known]), np.float64)

    @cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        return np.asarray(np.isfinite(self.mhz))

    @property
    def is_true(self) -> bool:
        """Return whether stamps gave at least half of the clock or scaled the driver's, which reads 8-12 % high under a cap."""
        return self.stamped_ratio >= 0.5 or self.scale != 1.0

    @cached_property
    def covered_ratio(self) -> float:
        return float(self.known.mean()) if len(self.mhz) else 0.0

    @cached_property
    def stamped_ratio(self) -> float:
        return float(self.stamped.mean()) if len(self.mhz) else 0.0

    def mean_shift_ratio(self, mhz: float, beta: float) -> float:
        """Return K, the relative excess of the mean time over the time at this clock; negative if the window ran faster."""
        return float(np.exp(beta * np.log(mhz / self.mhz[self.known])).mean() - 1.0)

    def variance(self) -> float:
        """Return the variance per block of the logarithm, as the controller's swing leaves it in a segment's mean."""
        quiet = max(cycle_variance(self.logs, round(CYCLE_NS / self.width_ns)), _STEADY_RATIO**2)
        return swing_variance(self.logs, quiet) if self.swings and len(self.logs) else quiet

    def levels(self, variance: float | None = None) -> tuple[SeriesLevel, ...]:
        """Return the levels of the logarithm of the known blocks, the slowest clock first."""
        penalty = _SWING_PENALTY if self.swings else PENALTY
        return find_levels(self.logs, self.variance() if variance is None else variance, penalty=penalty)


def clock_blocks(evidence: Evidence) -> ClockBlocks | None:
    """Return the window's clock in blocks, or None if no block has a clock.

    There are at most 600 blocks, and at most one per refresh and per three stamped entries.  Blocks without stamps take the
    driver's clock, scaled by three or more blocks that have both, else by a plain window's two stamps.
    """
    window, timings = evidence.window, inside(evidence)
    if window.length_ns <= 0:
        return None
    at_ns, width_ns = block_begins(evidence, len(timings.at_ns) if timings.sm_clock_mhz is not None else 0)
    true_mhz = _stamped(timings, at_ns)
    shown_mhz = _shown(evidence, at_ns, width_ns)
    stamped = np.isfinite(true_mhz)
    both = stamped & np.isfinite(shown_mhz)
    scale = centre(true_mhz[both] / shown_mhz[both]) if both.sum() >= _OVERLAP_COUNT else _stamps_scale(evidence)
    mhz = np.where(stamped, true_mhz, scale * shown_mhz)
    if not np.isfinite(mhz).any():
        return None
    return ClockBlocks(at_ns, width_ns, mhz, stamped, scale, is_mostly_capped(evidence))


def block_begins(evidence: Evidence, stamped_count: int) -> tuple[Times, int]:
    """Return the start time of each block of the window and the common width."""
    length_ns = evidence.window.length_ns
    most = min(_MOST_BLOCKS, length_ns // evidence.trace.refresh_of_ns("sm_clock_mhz"))
    if stamped_count:
        most = min(most, stamped_count // _ENTRIES_COUNT)
    count = max(1, int(most))
    return evidence.window.begin_ns + length_ns * np.arange(count, dtype=np.int64) // count, max(1, length_ns // count)


def entry_blocks(timings: Timings, at_ns: Times) -> npt.NDArray[np.intp]:
    """Return the block in which the middle of each entry lies."""
    middle_ns = timings.at_ns + (timings.took_s * timings.calls_count * 5e8).astype(np.int64)
    return np.maximum(at_ns.searchsorted(middle_ns, side="right") - 1, 0)


def _stamped(timings: Timings, at_ns: Times) -> Values:
    """Return the mean stamped clock over each block's timed entries; NaN if under half of the entries' time has a clock."""
    out = np.full(len(at_ns), np.nan)
    clock_mhz = timings.sm_clock_mhz
    if clock_mhz is None or not len(clock_mhz):
        return out
    place, took_s = entry_blocks(timings, at_ns), timings.took_s
    known = (clock_mhz >= _LEAST_MHZ) & (clock_mhz <= _MOST_MHZ)
    timed_s = np.bincount(place, took_s, len(at_ns))
    known_s = np.bincount(place[known], took_s[known], len(at_ns))
    cycles = np.bincount(place[known], took_s[known] * clock_mhz[known], len(at_ns))
    enough = (known_s > 0.0) & (2.0 * known_s >= timed_s)
    out[enough] = cycles[enough] / known_s[enough]
    return out


def _shown(evidence: Evidence, at_ns: Times, width_ns: int) -> Values:
    """Return the driver's mean clock in each block while the GPU was not reported idle; NaN if mostly unknown."""
    out = np.full(len(at_ns), np.nan)
    refresh_ns = evidence.trace.refresh_of_ns("sm_clock_mhz")
    if evidence.window.length_ns < 3 * refresh_ns or not evidence.trace.observes("sm_clock_mhz"):
        return out
    # The gauge lags by up to a refresh: it fits stamped clocks best three quarters of a refresh later.
    times = evidence.window.begin_ns + np.arange(0, evidence.window.length_ns, max(_GRID_NS, width_ns // 20), dtype=np.int64)
    # After the window the gauge may show the clock of a GPU at rest.
    later = np.minimum(times + refresh_ns * 3 // 4, evidence.window.end_ns)
    mhz = evidence.trace.at("sm_clock_mhz", later)
    known = (mhz > 0.0) & ~has_reason(evidence.trace.at("event_reasons_mask", later), Reason.GPU_IDLE)
    place = np.maximum(at_ns.searchsorted(times, side="right") - 1, 0)
    total = np.bincount(place, minlength=len(at_ns))
    counts = np.bincount(place[known], minlength=len(at_ns))
    sums = np.bincount(place[known], mhz[known], len(at_ns))
    enough = (counts > 0) & (2 * counts >= total)
    out[enough] = sums[enough] / counts[enough]
    return out


def _stamps_scale(evidence: Evidence) -> float:
    """Return the true mean clock between a plain window's two stamps over the driver's; 1 without them."""
    true = measured(evidence)
    shown_mhz = driver_clock_mhz(evidence, true) if true is not None and not true.iterations else None
    return true.clock_mhz / shown_mhz if true is not None and shown_mhz else 1.0
