"""One window's evidence in one pass of the judge, with the derived facts that rules and proofs share."""

from dataclasses import replace

from annotate.case_series import CaseSeries, unlimited_dips
from annotate.claims import Claim
from annotate.derived.beyond_clock import at_drivers_clock
from annotate.derived.busy_share import BusyShare, busy_witnesses, is_contradicted
from annotate.derived.clock_edges import edges_ratio
from annotate.derived.clock_shift import ClockShift, clock_shift
from annotate.derived.foreign_work import ForeignWork, foreign_work
from annotate.derived.held import may_be_capped
from annotate.derived.measured_numbers import MeasuredNumbers, measured_numbers
from annotate.derived.neighbours import Neighbours, neighbours
from annotate.derived.power_dips import is_whole
from annotate.derived.steady_reference import SteadyBy, steady_reference
from annotate.derived.time_accounts import SHORTEST_NS, TimeAccounts, timed_accounts, untimed_accounts
from annotate.derived.time_levels import TimeLevels, time_levels
from annotate.derived.time_overlap import TimeOverlap, time_overlap
from annotate.evidence import Evidence, Timings
from annotate.evidence.asked import Kept
from annotate.times.at_one_clock import OneClockTimes, loosely_at_one_clock, one_clock_times
from annotate.times.reference_clock import ReferenceClock, reference_clock_mhz, set_clock_mhz


class Case(CaseSeries):
    """The derived facts of a window that several rules and proofs use; each ``Kept`` fact is computed once."""

    def __init__(
        self, evidence: Evidence, claim: Claim = Claim.SUSTAINED, *, reference_mhz: ReferenceClock | None = None
    ) -> None:
        super().__init__(evidence, claim)
        self._given = reference_mhz  # None: the reference clock of the model

    @Kept
    def busy_shares(self) -> tuple[BusyShare, ...]:
        """Return the share of the window in which the GPU was busy, once per witness."""
        return busy_witnesses(self.evidence, self.idle_w)

    @Kept
    def is_busy_contradicted(self) -> bool:
        """Return True if utilisation shows an idle GPU while energy shows work."""
        return is_contradicted(self.evidence, self.busy_shares, self.idle_w)

    @property
    def is_rest_counted(self) -> bool:
        """Return True if regular idle time counts: no times, no claimed pauses, 1 s or more, energy not against utilisation."""
        is_shown = self.evidence.window.length_ns >= SHORTEST_NS and not self.is_busy_contradicted
        return is_shown and not (self.has_times or self.is_sparse)

    @Kept
    def accounts(self) -> TimeAccounts | None:
        """Return the books: timed and declared time or, without times, the window's processes' time against busy time.

        Return None below a second, without a usable busy share, or without times if no record accounts for the busy time.
        """
        if not self.has_times:
            return untimed_accounts(self.evidence, self.busy_shares)
        if self.is_busy_contradicted:
            return None
        return timed_accounts(
            self.evidence,
            self.busy_shares,
            self.timings,
            self.gaps,
            stamp_s=self.stamp_s,
            other=self.other_spans_ns,
            dips=unlimited_dips(self)
            if self.gaps is None and is_whole(self.evidence.trace.dense_power, self.evidence.window)
            else None,
        )

    @Kept
    def overlap(self) -> TimeOverlap | None:
        """Return the sum of all times next to the time that was available; None without times."""
        shares = () if self.is_busy_contradicted else self.busy_shares
        return time_overlap(self.evidence, shares, self.timings, self.gaps)

    @property
    def times_agree(self) -> bool:
        """Return True if the times claim no more than the observed busy time, so that the gaps hold all idle time."""
        accounts = self.accounts
        return self.has_times and accounts is not None and accounts.counted_ratio() >= 0.0

    @Kept
    def one_clock(self) -> OneClockTimes:
        """Return the times converted to the window's median clock, or as measured if no conversion is possible."""
        return one_clock_times(self.timings, self.fit)

    @Kept
    def driven(self) -> Timings | None:
        """Return times without stamps at one value of the driver's clock; None as ``at_drivers_clock`` or without starts."""
        return at_drivers_clock(self.timings, self.blocks) if self.gaps is not None else None

    @Kept
    def raw_levels(self) -> TimeLevels | None:
        """Return the levels of the times at the stamped clock, or as measured without a conversion; None for too few times."""
        clocked = self.clocked
        times = self.one_clock if clocked is self.timings else one_clock_times(clocked, self.fit)
        return time_levels(self.evidence, self.timings, times)

    @Kept
    def time_levels(self) -> TimeLevels | None:
        """Return the levels of the times, with as much of the clock removed as is known, or None for too few times."""
        found = self.raw_levels
        if found is None or found.is_at_one_clock or not may_be_capped(self.evidence):
            return found
        # The swing of raw times can hide what the clock does not explain.
        driven = self.driven
        times = loosely_at_one_clock(self.timings) if driven is None else OneClockTimes(driven.at_ns, driven.took_s)
        beside = time_levels(self.evidence, driven or self.timings, times) if times is not None else None
        is_clearer = beside is not None and (
            beside.largest_ratio > found.largest_ratio if driven is None else beside.variance < found.variance
        )
        if beside is None or not is_clearer:
            return found
        return beside if driven is None else replace(beside, raw=found)

    @property
    def reference_mhz(self) -> float | None:
        """Return the clock for numbers at one clock: the given clock, else the model's.

        Return None, for the window's own clock, for an unknown model, a clock that the card lacks, and under ``fixed-clock``.
        """
        device = self.evidence.device
        mhz = reference_clock_mhz(device.name if device is not None else None, self._given)
        return None if mhz is None or self._why_refused(mhz) else mhz

    @property
    def off_reference(self) -> str:
        """Return the reason why no time at the given reference clock is known; empty if it is, or without one."""
        device, times = self.evidence.device, self.one_clock
        mhz = set_clock_mhz(device.name if device is not None else None, self._given)
        if mhz is None or (times.clock_mhz is not None and round(times.clock_mhz) == round(mhz)):
            return ""
        why = self._why_refused(mhz) or times.why_not_at(mhz)
        return f"no time at {mhz:.0f} MHz: {why}" if why else ""

    def _why_refused(self, mhz: float) -> str:
        device = self.evidence.device
        most_mhz = device.sm_clock_max_mhz if device is not None else None
        if most_mhz and mhz > most_mhz:
            return f"the card's highest SM clock is {most_mhz} MHz"
        return "the claim fixed-clock is about the locked clock" if self.claim is Claim.FIXED_CLOCK else ""

    @Kept
    def numbers(self) -> MeasuredNumbers:
        """Return the window's numbers with their repeatability, without causes."""
        return measured_numbers(
            self.evidence,
            self.timings,
            self.one_clock,
            self.gaps,
            reference_mhz=self.reference_mhz,
            clock_ratio=self.clock_swing_ratio,
        )

    @Kept
    def clock_shift(self) -> ClockShift | None:
        """Return the bias of the window's clock against its levels and the steady clock, or None if no clock is known."""
        if self.blocks is None:
            return None
        sustained = self.claim is Claim.SUSTAINED
        steady = steady_reference(self.evidence, self.blocks, self.load) if sustained else None
        load = self.load if sustained else None
        is_free = steady is not None and steady.by is SteadyBy.ITSELF
        edges = edges_ratio(self.evidence, self.blocks, self.levels) if is_free else 0.0
        return clock_shift(
            self.blocks, self.levels, self.clock_variance, self.beta, load=load, steady=steady, edges_ratio=edges
        )

    @Kept
    def neighbours(self) -> Neighbours:
        """Return the other processes on the GPU."""
        return neighbours(self.evidence)

    @Kept
    def foreign_work(self) -> ForeignWork:
        """Return the traces of other processes' work in times, utilisation and the record, even without a named process."""
        return foreign_work(self.evidence, self.timings, self.fit, self.neighbours, stamp_s=self.stamp_s)
