"""Series derived from a window's evidence in one pass of the judge: times, gaps, power dips, clock blocks, load."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from annotate.claims import Claim
from annotate.declared import amount
from annotate.derived.clock_blocks import ClockBlocks, clock_blocks, entry_blocks
from annotate.derived.idle_gaps import STAMP_S, IdleGaps, Span, entry_gaps
from annotate.derived.load_time import PAUSE_S, LoadTime, load_time
from annotate.derived.power_dips import limited_dips, power_dips, resting_power_w, work_quantile
from annotate.evidence import Evidence, Fact, Timings
from annotate.evidence.asked import Asked, Kept, Memory
from annotate.stats.change_points import SeriesLevel
from annotate.times.clock_sensitivity import NoFit, Sensitivity, sensitivity
from annotate.times.durations import inside

_SETTLED_SD = 0.05  # of a block's log clock (decision 0115): at most 0.039 in 137 capped windows, 0.10 in a second from idle
_SURE_SD = 1.96  # standard deviations: half the 95 % interval of a normal distribution


class CaseSeries:
    """The evidence of one pass under one claim.  Each ``Kept`` series is computed at its first use, then cached."""

    def __init__(self, evidence: Evidence, claim: Claim = Claim.SUSTAINED) -> None:
        self.evidence = evidence
        self.memory = evidence.memory if isinstance(evidence, Asked) else Memory()
        self.claim = claim

    @Kept
    def timings(self) -> Timings:
        """Return the usable times inside the window; empty without times."""
        return inside(self.evidence)

    @property
    def has_times(self) -> bool:
        return len(self.timings.at_ns) > 0

    @Kept
    def is_stamped(self) -> bool:
        """Return True if the clock of at least half of the window's blocks was stamped."""
        return self.blocks is not None and self.blocks.stamped_ratio >= 0.5

    @property
    def stamp_s(self) -> float:
        """Return the GPU's time for the stamps around one entry: as declared, else ``STAMP_S``; 0 without stamps."""
        if self.timings.sm_clock_mhz is None:
            return 0.0
        stamp_s = self.fact("stamp_s")
        return float(stamp_s) if isinstance(stamp_s, int | float) and 0.0 <= stamp_s < 1.0 else STAMP_S

    @property
    def timer_s(self) -> float:
        """Return the GPU's time for one call's timer; without stamps, CUDA events are assumed to take as long as stamps."""
        return STAMP_S if self.timings.sm_clock_mhz is None else self.stamp_s

    @property
    def other_spans_ns(self) -> Sequence[Span]:
        """Return start and end of each piece of declared other work."""
        other = self.evidence.other_work
        return other.spans_ns if other is not None else ()

    @Kept
    def gaps(self) -> IdleGaps | None:
        """Return the idle time in the gaps between entries and at the window's edges; None without an entry or a start time."""
        if not self.has_times:
            return None
        return entry_gaps(self.timings, self.evidence.window, covered=self.other_spans_ns, timer_s=self.timer_s)

    @Kept
    def is_sparse(self) -> bool:
        """Return True if the claim is about calls between pauses: a burst, or calls with a period that fits in the window."""
        every_s = amount(self.evidence.declared, "every_s")
        return self.claim is Claim.BURST or (every_s is not None and 0.0 < every_s <= self.evidence.window.length_s)

    @Kept
    def idle_w(self) -> float | None:
        """Return the idle power from the device record, else ``resting_power_w``: None if never idle or for too few samples."""
        evidence = self.evidence
        if evidence.device is not None and evidence.device.idle_power_w is not None:
            return evidence.device.idle_power_w
        return resting_power_w(
            evidence.trace.dense_power, evidence.window, work=work_quantile(evidence, is_sparse=self.is_sparse)
        )

    @Kept
    def dips(self) -> IdleGaps | None:
        """Return the idle time in dips of the driver's power record, limited by utilisation; None as ``unlimited_dips``."""
        dips = unlimited_dips(self)
        return limited_dips(dips, self.evidence) if dips is not None else None

    @Kept
    def blocks(self) -> ClockBlocks | None:
        """Return the SM clock in blocks, from a block's stamps, else from the driver, or None if no block has a clock."""
        return clock_blocks(self.evidence)

    @Kept
    def levels(self) -> tuple[SeriesLevel, ...]:
        """Return the levels of the clock's logarithm, slowest first; empty if no clock is known."""
        return self.blocks.levels(self.clock_variance) if self.blocks is not None else ()

    @Kept
    def clock_variance(self) -> float:
        """Return the variance per block of the clock's logarithm, due to the controller's cycle; 0 if no clock is known.

        After 3 s of load the variance is limited: recorded windows stay below the limit, and more is a change of the clock.
        """
        variance = self.blocks.variance() if self.blocks is not None else 0.0
        return min(variance, _SETTLED_SD**2) if self.load.is_settled else variance

    @Kept
    def clock_swing_ratio(self) -> float | None:
        """Return half the 95 % interval of the mean time, due to the swing of the clock, or None if no clock is known."""
        if self.blocks is None or not self.blocks.known.any():
            return None
        return _SURE_SD * self.beta * float((self.clock_variance / self.blocks.known.sum()) ** 0.5)

    @Kept
    def fit(self) -> Sensitivity | NoFit:
        return sensitivity(self.timings)

    @property
    def beta(self) -> float:
        """Return the exponent β of time against clock; 1 without a fit."""
        return self.fit.beta if isinstance(self.fit, Sensitivity) else 1.0

    @Kept
    def load(self) -> LoadTime:
        """Return the times at which load began, before the window and after each pause inside."""
        if self.gaps is not None:
            return load_time(self.evidence, self.gaps.spans_ns(least_s=PAUSE_S))
        if self.dips is None:
            return load_time(self.evidence, ())
        # Opening a window leaves long, shallow dips with little idle time, so a pause is judged by idle time, not by length.
        sure_s = (self.dips.idle_s[self.dips.irregular] - self.dips.blur_s).tolist()
        dips = zip(self.dips.spans_ns(), sure_s, strict=True)
        return load_time(self.evidence, [span for span, idle_s in dips if idle_s > PAUSE_S])

    @property
    def clocked(self) -> Timings:
        """Return the times; in stamped series, entries without a stamp take the clock of their block."""
        timings, blocks = self.timings, self.blocks
        if timings.sm_clock_mhz is None or blocks is None or np.isfinite(timings.sm_clock_mhz).all():
            return timings
        shown_mhz = blocks.mhz[entry_blocks(timings, blocks.at_ns)]
        clock_mhz = np.where(np.isfinite(timings.sm_clock_mhz), timings.sm_clock_mhz, shown_mhz)
        return replace(timings, sm_clock_mhz=np.asarray(clock_mhz, np.float64))

    def fact(self, name: str) -> Fact:
        """Return a declared fact, or None if it is not declared in this pass."""
        return self.evidence.declared.get(name)


def unlimited_dips(case: CaseSeries) -> IdleGaps | None:
    """Return the idle time in dips of the power record alone; None for fewer than six samples or an unknown idle power."""
    evidence, work = case.evidence, work_quantile(case.evidence, is_sparse=case.is_sparse)
    return power_dips(evidence.trace.dense_power, evidence.window, idle_w=case.idle_w, work=work)
