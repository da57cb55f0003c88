"""One window's series as one asking pass sees them: times, gaps, dips of power, blocks of the clock, and the load."""

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

_SURE_SD = 1.96  # of a normal, at 95 %


class CaseSeries:
    """The evidence of one pass under one claim.  Everything here is computed when first asked for, and then kept."""

    def __init__(self, evidence: Evidence, claim: Claim = Claim.SUSTAINED, *, whole: Evidence | None = None) -> None:
        self.evidence = evidence
        self.memory = evidence.memory if isinstance(evidence, Asked) else Memory()
        self.claim = claim
        self.whole = whole or evidence  # of the pass with everything: for words only, never for a bound

    @Kept
    def timings(self) -> Timings:
        """The usable times inside the window; empty where there are none."""
        return inside(self.evidence)

    @property
    def has_times(self) -> bool:
        return len(self.timings.at_ns) > 0

    @Kept
    def is_stamped(self) -> bool:
        """Return whether the clock of at least half of the window's blocks was stamped."""
        return self.blocks is not None and self.blocks.stamped_ratio >= 0.5

    @property
    def stamp_s(self) -> float:
        """The GPU's time for the stamps around one entry; 0 where nothing was stamped."""
        if self.timings.sm_clock_mhz is None:
            return 0.0
        stamp_s = self.fact("stamp_s")
        return float(stamp_s) if isinstance(stamp_s, int | float) and 0.0 <= stamp_s < 1.0 else STAMP_S

    @property
    def timer_s(self) -> float:
        """The GPU's time for reading the times of one call: events take as long as stamps, where they took the begins."""
        return STAMP_S if self.timings.sm_clock_mhz is None else self.stamp_s

    @property
    def other_spans_ns(self) -> Sequence[Span]:
        """Begin and end of each piece of declared other work."""
        other = self.evidence.other_work
        return other.spans_ns if other is not None else ()

    @Kept
    def gaps(self) -> IdleGaps | None:
        """Idle time by the gaps between entries; None without times, or without their begins."""
        if not self.has_times:
            return None
        return entry_gaps(self.timings, self.evidence.window, covered=self.other_spans_ns, timer_s=self.timer_s)

    @property
    def is_sparse(self) -> bool:
        """Return whether the claim is of calls between pauses: a burst, or a declared period."""
        return self.claim is Claim.BURST or amount(self.evidence.declared, "every_s") is not None

    @Kept
    def idle_w(self) -> float | None:
        """The power of this card at rest: on record, else as it rested in or before the window; None if it did not."""
        evidence = self.evidence
        if evidence.device is not None and evidence.device.idle_power_w is not None:
            return evidence.device.idle_power_w
        return resting_power_w(
            evidence.trace.dense_power, evidence.window, work=work_quantile(evidence, is_sparse=self.is_sparse)
        )

    @Kept
    def dips(self) -> IdleGaps | None:
        """Idle time by dips of the driver's power record; None where it does not cover the window."""
        evidence = self.evidence
        dips = power_dips(
            evidence.trace.dense_power,
            evidence.window,
            idle_w=self.idle_w,
            work=work_quantile(evidence, is_sparse=self.is_sparse),
        )
        return limited_dips(dips, evidence) if dips is not None else None

    @Kept
    def blocks(self) -> ClockBlocks | None:
        """The SM clock in blocks: stamped where stamped, else NVML's."""
        return clock_blocks(self.evidence)

    @Kept
    def levels(self) -> tuple[SeriesLevel, ...]:
        """The levels of the logarithm of the clock, the slowest first."""
        return self.blocks.levels(self.clock_variance) if self.blocks is not None else ()

    @Kept
    def clock_variance(self) -> float:
        """The variance of a block's logarithm that the controller's cycle leaves in a mean; 0 where no clock is known."""
        return self.blocks.variance() if self.blocks is not None else 0.0

    @property
    def clock_swing_ratio(self) -> float | None:
        """Half the 95 % interval that the swing of the clock leaves the window's mean; None where no clock is known."""
        if self.blocks is None or not self.blocks.known.any():
            return None
        return _SURE_SD * self.beta * float((self.clock_variance / self.blocks.known.sum()) ** 0.5)

    @Kept
    def fit(self) -> Sensitivity | NoFit:
        return sensitivity(self.timings)

    @property
    def beta(self) -> float:
        """The exponent of time against clock; 1 where it was not fitted."""
        return self.fit.beta if isinstance(self.fit, Sensitivity) else 1.0

    @Kept
    def load(self) -> LoadTime:
        """The times at which load began, before the window and after each pause in it."""
        if self.gaps is not None:
            return load_time(self.evidence, self.gaps.spans_ns(least_s=PAUSE_S))
        if self.dips is None:
            return load_time(self.evidence, ())
        # A dip is as long as the idle time in it; opening a window leaves shallow ones, which are no pause of 20 ms.
        sure_s = (self.dips.idle_s[self.dips.irregular] - self.dips.blur_s).tolist()
        dips = zip(self.dips.spans_ns(), sure_s, strict=True)
        return load_time(self.evidence, [span for span, idle_s in dips if idle_s > PAUSE_S])

    @property
    def clocked(self) -> Timings:
        """The times with the driver's clock, scaled to the stamps, where stamps ran out."""
        timings, blocks = self.timings, self.blocks
        if timings.sm_clock_mhz is None or blocks is None or np.isfinite(timings.sm_clock_mhz).all():
            return timings
        shown_mhz = blocks.mhz[entry_blocks(timings, blocks.at_ns)]
        clock_mhz = np.where(np.isfinite(timings.sm_clock_mhz), timings.sm_clock_mhz, shown_mhz)
        return replace(timings, sm_clock_mhz=np.asarray(clock_mhz, np.float64))

    def fact(self, name: str) -> Fact:
        """Return a declared fact; None if it is not declared in this pass."""
        return self.evidence.declared.get(name)
