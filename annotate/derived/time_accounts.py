"""The books of a window: the GPU's busy time against the accounted time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from annotate.budget import Bound, Estimate, Group, Number
from annotate.derived.busy_share import BusyShare, foreign_most_ratio, gauge_share, own_share
from annotate.derived.idle_gaps import STAMP_S, IdleGaps, Span, overlap_ns
from annotate.derived.neighbours import neighbours
from annotate.derived.presence import alone
from annotate.evidence import Evidence, Timings
from annotate.stats.robust import centre

BOOKS_ERROR_RATIO = 0.013  # the specification: 42 of 44 clean H200 windows balance to -1.1 to +0.6 percentage points
SHORTEST_NS = 1_000_000_000
_LEAST_RATIO = 1e-3  # lower limit of the divisor, as a part of the window
GAUGE_ERROR_RATIO = 0.03  # utilisation fell, in ten clean scenarios, up to 2.7 percentage points short of the timed share
# Decision 0113: equal gaps after nearly every call may be GPU work; long gaps that vary are host pauses.
FIXED_ERROR_RATIO = 0.01
_PAUSES_RATIO = 0.01
_FULL_RATIO = 0.99  # utilisation below this shows the pauses
_LAUNCH_BOUND_S = 50e-6  # two of three calls of 15 µs took 29 µs when CPU cores were short
_EDGES_S = 2e-6  # a pair of events around a piece of other work; a pair around nothing read 1.3 to 1.9 µs on H200s
_EDGES_RATIO = 0.01  # limit, because the process declares the pieces
_LAUNCH_S = 8e-6  # an event pair around nothing reads 2 to 8 µs: ``short-kernel`` counts it
_EVENTS_S = 3.5e-6  # utilisation exceeded work timed with CUDA events by at most 3.2 µs a call (decision 0126)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAccounts:
    """Shares of a window: the witnessed busy share and the shares that account for it.

    ``foreign_ratio`` is the upper bound of other processes' share.  A neighbour's work may lie wholly inside timed entries,
    which it lengthens.
    """

    busy: BusyShare
    timed_ratio: float = 0.0
    stamps_ratio: float = 0.0
    other_ratio: float = 0.0  # declared work outside the entries
    own_ratio: float = 0.0  # time of the window's own processes, if nothing was timed
    foreign_ratio: float = 0.0
    has_times: bool = False
    call_s: float = 0.0  # the median
    between_ratio: float = 0.0  # most busy time of the timer between entries, or of an entry cut off at an edge
    launches_ratio: float = 0.0  # the most that launches can have added to the entries' time
    fixed_ratio: float = 0.0  # idle time that nearly every gap contains, if the gaps are equal
    grown_ratio: float = 0.0  # the same, if the gaps also grow with the calls before them
    pauses_ratio: float = 0.0  # host pauses that utilisation can have counted as busy

    @property
    def claimed_ratio(self) -> float:
        """Return the share that is declared or recorded as work, without the stamps, which are not a claim."""
        return self.accounted_ratio - self.stamps_ratio

    @property
    def accounted_ratio(self) -> float:
        return self.timed_ratio + self.stamps_ratio + self.other_ratio + self.own_ratio

    @property
    def untimed_ratio(self) -> float:
        """Return the busy share beyond the accounted one, of any process; 0 if there is none."""
        return max(0.0, self.busy.ratio - self.accounted_ratio)

    @property
    def rest_ratio(self) -> float:
        """Return busy minus accounted and foreign time: positive if time is unaccounted, negative if accounts exceed it."""
        beyond = self.busy.ratio - self.accounted_ratio
        return beyond - min(self.foreign_ratio, max(beyond, 0.0))

    def farthest_ratio(self, error_ratio: float = BOOKS_ERROR_RATIO) -> float:
        """Return the end of the rest's interval farther from zero, with the errors of books and gauge, without neighbours."""
        above = self.busy.most_ratio - self.accounted_ratio + self.launches_ratio + max(error_ratio, GAUGE_ERROR_RATIO)
        counted = self.counted_ratio(error_ratio)
        return above if counted >= 0.0 else counted - error_ratio

    def counted_ratio(self, error_ratio: float = BOOKS_ERROR_RATIO) -> float:
        """Return the signed part of the rest beyond the errors of witness and books; at least ``hidden_ratio`` if above 0."""
        below = self.claimed_ratio - self.busy.most_ratio - self.launches_ratio - max(error_ratio, GAUGE_ERROR_RATIO)
        return max(self.above_ratio(error_ratio), self.hidden_ratio) or -max(0.0, below)

    def above_ratio(self, error_ratio: float = BOOKS_ERROR_RATIO) -> float:
        """Return the busy share beyond the accounts that errors of witness and books cannot explain; 0 without any."""
        known_ratio = self.accounted_ratio + self.foreign_ratio
        return max(0.0, self.busy.least_ratio - known_ratio - self.between_ratio - self.pauses_ratio - error_ratio)

    @property
    def hidden_ratio(self) -> float:
        """Return the part of equal gaps after the calls that can be work, beyond its error; 0 if utilisation shows idle time.

        Utilisation counted this part as busy, or can have missed this part if the gaps grow with the calls before them.
        """
        if _shows_gaps(self.busy):
            return 0.0
        rest_ratio = self.busy.ratio - self.accounted_ratio - self.foreign_ratio - self.between_ratio
        grown_ratio = min(self.grown_ratio, rest_ratio + GAUGE_ERROR_RATIO)
        return max(0.0, max(min(self.fixed_ratio, rest_ratio), grown_ratio) - FIXED_ERROR_RATIO)


def timed_accounts(
    evidence: Evidence,
    shares: Sequence[BusyShare],
    timings: Timings,
    gaps: IdleGaps | None,
    *,
    stamp_s: float = 0.0,
    other: Sequence[Span] = (),
    dips: IdleGaps | None = None,
) -> TimeAccounts | None:
    """Return the books of a window with times; None below a second or if utilisation is not known.

    ``gaps`` is ``entry_gaps`` of these times, None if start times are not known.  Overlapping entries count once.  Declared
    other work counts only outside the entries.  ``dips`` is the idle time by the power record, for times without start times.
    A low reading of utilisation at the window's edge then describes other time, unless power shows the rest inside.
    """
    window, busy = evidence.window, gauge_share(shares)
    if busy is None or window.length_ns < SHORTEST_NS or not len(timings.at_ns):
        return None
    if gaps is None and dips is not None:
        least_ratio = busy.inner_ratio - float((dips.idle_s + dips.errors_s).sum()) / window.length_s
        busy = replace(busy, least_ratio=max(busy.least_ratio, least_ratio))
    entries_s = timings.took_s * timings.calls_count
    if gaps is not None:
        idle_ns = float((gaps.end_ns - gaps.begin_ns).sum())
        others_ns = overlap_ns(gaps.begin_ns, gaps.end_ns, other)
        # No more than the declared work in the gap: pieces without length, or outside the gaps, allow nothing.
        other_ns, edges_ns = float(others_ns.sum()), float(np.minimum(others_ns, _EDGES_S * 1e9).sum())
    else:
        idle_ns = max(0.0, window.length_ns - float(entries_s.sum()) * 1e9)
        whole = np.array([window.begin_ns], np.int64), np.array([window.end_ns], np.int64)
        other_ns = min(idle_ns, float(overlap_ns(*whole, other).sum()))
        edges_ns = min(other_ns, min(len(entries_s), len(other)) * _EDGES_S * 1e9)
    stamps_ns = min(len(entries_s) * stamp_s * 1e9, idle_ns - other_ns)
    # Sources of busy time between entries: events take GPU time as stamps do, also at the edges of other work.  An entry of
    # merged calls holds further stamps.  Without start times the launches and the place of one entry are unknown.
    call_s = stamp_s or (_EVENTS_S if _shows_gaps(busy) else STAMP_S if gaps is not None else _LAUNCH_S)
    between_s = len(entries_s) * (timings.calls_count - (1 if stamp_s else 0)) * call_s
    between_ns = (between_s + (float(entries_s.max()) if gaps is None else 0.0)) * 1e9
    between_ns += min(edges_ns, _EDGES_RATIO * window.length_ns)
    even_ratio = gaps.fixed_ratio if gaps is not None and gaps.is_even else 0.0
    is_open = even_ratio > FIXED_ERROR_RATIO and not _shows_gaps(busy)
    return TimeAccounts(
        busy=busy,
        timed_ratio=1.0 - idle_ns / window.length_ns,
        stamps_ratio=stamps_ns / window.length_ns,
        other_ratio=other_ns / window.length_ns,
        foreign_ratio=foreign_most_ratio(evidence),
        has_times=True,
        between_ratio=min(between_ns, idle_ns - other_ns - stamps_ns) / window.length_ns,
        call_s=centre(timings.took_s),
        launches_ratio=launches_ratio(timings, window.length_s),
        fixed_ratio=even_ratio,
        grown_ratio=even_ratio if gaps is not None and is_open and gaps.is_proportional else 0.0,
        pauses_ratio=min(_PAUSES_RATIO, gaps.pauses_ratio) if gaps is not None and busy.ratio >= _FULL_RATIO else 0.0,
    )


def _shows_gaps(busy: BusyShare) -> bool:
    """Return whether the gauge shows idle time; at full utilisation it counts the gaps between launches back to back as work."""
    return busy.most_ratio < 1.0 - GAUGE_ERROR_RATIO


def launches_ratio(timings: Timings, length_s: float) -> float:
    """Return the most that launches can have added to these times, as a share of the window."""
    return min(1.0, len(timings.at_ns) * timings.calls_count * _LAUNCH_S / length_s)


def untimed_accounts(evidence: Evidence, shares: Sequence[BusyShare]) -> TimeAccounts | None:
    """Return the books of a window without times: the shares of the window's processes and of others.

    If the window's processes were provably alone, all busy time is their own.  Otherwise the driver's record of each process
    counts.  In a container one unknown PID may be the measured process.  Return None below a second, without utilisation, or
    if no record accounts for the busy time.
    """
    busy = gauge_share(shares)
    if busy is None or evidence.window.length_ns < SHORTEST_NS:
        return None
    if alone(evidence):
        return TimeAccounts(busy=busy, own_ratio=busy.ratio)
    own, foreign_ratio = own_share(shares), foreign_most_ratio(evidence)
    if own is not None:
        return TimeAccounts(busy=busy, own_ratio=min(own.ratio, busy.ratio), foreign_ratio=foreign_ratio)
    unknown = next(iter(neighbours(evidence).perhaps_own), None)
    if unknown is None or unknown.least_ratio is None or unknown.most_ratio is None:
        return None
    own_ratio = min(0.5 * (unknown.least_ratio + unknown.most_ratio), busy.ratio)
    return TimeAccounts(busy=busy, own_ratio=own_ratio, foreign_ratio=max(0.0, foreign_ratio - unknown.most_ratio))


def rest_bounds(accounts: TimeAccounts, rule: str, *, error_ratio: float = BOOKS_ERROR_RATIO) -> tuple[Bound, ...]:
    """Return the bounds of the rest of the books for each number; empty if the books balance.

    A positive rest counts as missed timed work: the times are too short.  If the accounts exceed the busy time by more than
    launches add, the times are too long.  Declared other work that the GPU did not do was idle time.
    """
    counted = accounts.counted_ratio(error_ratio)
    if counted == 0.0:
        return ()
    farthest = accounts.farthest_ratio(error_ratio)
    lost_ratio = farthest if counted > 0.0 else min(-counted, accounts.other_ratio)
    found = []
    if lost_ratio > 0.0:
        found.append(Bound(number=Number.THROUGHPUT, rule=rule, group=Group.BOOKS, ratio=min(1.0, lost_ratio)))
    if accounts.has_times:
        nearer, value, farther = (_moved(accounts, rest) for rest in (counted, accounts.rest_ratio, farthest))
        low, middle, high = sorted((nearer, value, farther))
        # The launch's part of such a short call is not known, and equal gaps can be idle: both can flag but not reject.
        is_launching = counted < 0.0 and accounts.call_s < _LAUNCH_BOUND_S
        is_hidden = counted > 0.0 and not accounts.above_ratio(error_ratio)
        estimate = None if is_launching or is_hidden else Estimate(low, middle, high)
        found += [
            Bound(
                number=number, rule=rule, group=Group.BOOKS, ratio=abs(nearer if is_launching else farther), estimate=estimate
            )
            for number in (Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)
        ]
    return tuple(found)


def _moved(accounts: TimeAccounts, rest_ratio: float) -> float:
    """Return the relative error of the times if all of the rest belongs to them."""
    return -rest_ratio / max(accounts.timed_ratio + rest_ratio, _LEAST_RATIO)
