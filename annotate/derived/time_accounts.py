"""The books of a window: the GPU's busy time against the time that is accounted for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from annotate.budget import Bound, Estimate, Group, Number
from annotate.derived.busy_share import BusyShare, foreign_most_ratio, gauge_share, own_share
from annotate.derived.idle_gaps import STAMP_S, IdleGaps, Span, overlap_ns
from annotate.derived.neighbours import neighbours
from annotate.derived.presence import alone
from annotate.evidence import Evidence, Timings
from annotate.stats.robust import centre

BOOKS_ERROR_RATIO = 0.013  # the specification: 42 of 44 clean windows of an H200 close to -1.1 to +0.6 points
SHORTEST_NS = 1_000_000_000
_LEAST_RATIO = 1e-3  # of the window: times of less are wrong by any factor
GAUGE_ERROR_RATIO = 0.03  # utilisation of ten clean scenarios fell up to 2.7 points short of what was timed
# Decision 0113: equal gaps after nearly every call may be the GPU's work; long gaps that vary are the host's pauses.
FIXED_ERROR_RATIO = 0.01
_ALIKE_RATIO = 0.85  # fixed over all regular idle time
_PAUSE_S = 100e-6
_PAUSES_RATIO = 0.01
_LAUNCH_BOUND_S = 50e-6  # two calls in three of 15 µs took 29 where processors were short
_LAUNCH_S = 8e-6  # an event pair around nothing reads 2 to 8 µs: ``short-kernel`` counts it


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAccounts:
    """Shares of a window: busy as witnessed, and what accounts for it.

    ``foreign_ratio`` is the most that others computed.  A neighbour may have computed inside timed entries, which then took
    longer, so that none of it need lie beside them.
    """

    busy: BusyShare
    timed_ratio: float = 0.0
    stamps_ratio: float = 0.0
    other_ratio: float = 0.0  # declared work outside the entries
    own_ratio: float = 0.0  # of the own processes, where nothing was timed
    foreign_ratio: float = 0.0
    has_times: bool = False
    call_s: float = 0.0  # the median
    between_ratio: float = 0.0  # what the timer can have kept busy between entries, or an entry cut off at an edge
    launches_ratio: float = 0.0  # of the entries' time, what launching can have added
    fixed_ratio: float = 0.0  # gaps that hold the same time after nearly every entry
    pauses_ratio: float = 0.0  # the host's pauses that utilisation can have counted as busy

    @property
    def claimed_ratio(self) -> float:
        """Return the share that somebody says was work; the timer's own work explains busy time and claims none."""
        return self.accounted_ratio - self.stamps_ratio

    @property
    def accounted_ratio(self) -> float:
        return self.timed_ratio + self.stamps_ratio + self.other_ratio + self.own_ratio

    @property
    def untimed_ratio(self) -> float:
        """Return the busy share beside everything accounted for, whoever computed; 0 if there is none."""
        return max(0.0, self.busy.ratio - self.accounted_ratio)

    @property
    def rest_ratio(self) -> float:
        """Return busy less accounted and foreign time: above zero nobody accounts for it, below the accounts exceed it."""
        beyond = self.busy.ratio - self.accounted_ratio
        return beyond - min(self.foreign_ratio, max(beyond, 0.0))

    def farthest_ratio(self, error_ratio: float = BOOKS_ERROR_RATIO) -> float:
        """Return the end of the rest that lies farther from zero: with the errors of books and gauge, and no neighbour's help."""
        above = self.busy.most_ratio - self.accounted_ratio + self.launches_ratio + max(error_ratio, GAUGE_ERROR_RATIO)
        counted = self.counted_ratio(error_ratio)
        return above if counted >= 0.0 else counted - error_ratio

    def counted_ratio(self, error_ratio: float = BOOKS_ERROR_RATIO) -> float:
        """Return the rest, with its sign, as far as neither witness nor books can be wrong by it."""
        known_ratio = self.accounted_ratio + self.foreign_ratio
        above = self.busy.least_ratio - known_ratio - self.between_ratio - self.pauses_ratio - error_ratio
        below = self.claimed_ratio - self.busy.most_ratio - self.launches_ratio - max(error_ratio, GAUGE_ERROR_RATIO)
        return max(0.0, above) or self.hidden_ratio or -max(0.0, below)

    @property
    def hidden_ratio(self) -> float:
        """Return the share of work in equal gaps after the calls that the gauge's shortfall can hide, beyond its error."""
        if self.busy.most_ratio < 1.0 - GAUGE_ERROR_RATIO:
            return 0.0
        return max(0.0, min(self.fixed_ratio, 1.0 - self.accounted_ratio - self.foreign_ratio) - FIXED_ERROR_RATIO)


def timed_accounts(
    evidence: Evidence,
    shares: Sequence[BusyShare],
    timings: Timings,
    gaps: IdleGaps | None,
    *,
    stamp_s: float = 0.0,
    other: Sequence[Span] = (),
) -> TimeAccounts | None:
    """Return the books of a window with times; None below a second, or where utilisation is not known.

    ``gaps`` is ``entry_gaps`` of these times, None where begins are not known.  Entries that overlap count once; declared
    other work counts as far as it lies outside them.
    """
    window, busy = evidence.window, gauge_share(shares)
    if busy is None or window.length_ns < SHORTEST_NS or not len(timings.at_ns):
        return None
    entries_s = timings.took_s * timings.calls_count
    if gaps is not None:
        idle_ns = float((gaps.end_ns - gaps.begin_ns).sum())
        other_ns = float(overlap_ns(gaps.begin_ns, gaps.end_ns, other).sum())
    else:
        idle_ns = max(0.0, window.length_ns - float(entries_s.sum()) * 1e9)
        whole = np.array([window.begin_ns], np.int64), np.array([window.end_ns], np.int64)
        other_ns = min(idle_ns, float(overlap_ns(*whole, other).sum()))
    stamps_ns = min(len(entries_s) * stamp_s * 1e9, idle_ns - other_ns)
    # Events take the GPU's time as stamps do, entries that merge calls leave the stamps of all but one, and begins that
    # nobody took leave the last entry's place open.
    between_s = len(entries_s) * (timings.calls_count - (1 if stamp_s else 0)) * (stamp_s or STAMP_S)
    between_ns = (between_s + (float(entries_s.max()) if gaps is None else 0.0)) * 1e9
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
        fixed_ratio=gaps.fixed_ratio if gaps is not None and _is_alike(gaps) else 0.0,
        pauses_ratio=min(_PAUSES_RATIO, gaps.varying_ratio) if gaps is not None and gaps.usual_s >= _PAUSE_S else 0.0,
    )


def _is_alike(gaps: IdleGaps) -> bool:
    """Return True if the regular gaps between entries vary as little as the times of a kernel."""
    return gaps.fixed_ratio >= _ALIKE_RATIO * (gaps.fixed_ratio + gaps.varying_ratio)


def launches_ratio(timings: Timings, length_s: float) -> float:
    """Return the share of a window that launching can have added to these times."""
    return min(1.0, len(timings.at_ns) * timings.calls_count * _LAUNCH_S / length_s)


def untimed_accounts(evidence: Evidence, shares: Sequence[BusyShare]) -> TimeAccounts | None:
    """Return the books of a window without times: the own processes' share, and others'.

    Processes that were provably alone did all there was.  Elsewhere the record of each process speaks.  In a container it
    may name the measured process by another PID: one unknown PID at most.  Where nobody accounts for anything: None.
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
    """Return how far the rest of the books can have moved each number; empty where the books balance.

    A rest above zero makes times too short, as if all of it belonged to the timed work.  Where the accounts exceed the busy
    time by more than launching adds, the times are too long.  Declared other work that the GPU did not do was idle time.
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
        rest_ratio = max(counted, accounts.rest_ratio) if counted > 0.0 else accounts.rest_ratio
        nearer, value, farther = (_moved(accounts, rest) for rest in (counted, rest_ratio, farthest))
        low, middle, high = sorted((nearer, value, farther))
        # How much of so short a call is launching is not known, so that its times flag and never reject.
        is_launching = counted < 0.0 and accounts.call_s < _LAUNCH_BOUND_S
        estimate = None if is_launching else Estimate(low, middle, high)
        found += [
            Bound(
                number=number, rule=rule, group=Group.BOOKS, ratio=abs(nearer if is_launching else farther), estimate=estimate
            )
            for number in (Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)
        ]
    return tuple(found)


def _moved(accounts: TimeAccounts, rest_ratio: float) -> float:
    """Return by how much the times are off if all of the rest belongs to them."""
    return -rest_ratio / max(accounts.timed_ratio + rest_ratio, _LEAST_RATIO)
