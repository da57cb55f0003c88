"""Timed entries that add up to more time than a GPU had for them one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from annotate.budget import Bound, Group, Number
from annotate.derived.busy_share import BusyShare, gauge_share
from annotate.derived.idle_gaps import IdleGaps
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO, GAUGE_ERROR_RATIO, SHORTEST_NS, launches_ratio
from annotate.evidence import Evidence, Timings

_LEAST_RATIO = 1e-3  # of the window: entries of less are wrong by any factor


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOverlap:
    """The sum of all entries, as shares of the window, beside the most that fits into it and the least that it can be.

    A stream runs its calls one after the other.  Entries that sum up to more than the GPU was busy therefore ran beside
    each other, enclose work of each other, or were told more than once: the evidence does not tell which.
    """

    together_ratio: float
    covered_ratio: float  # the window's share that any entry covers
    fits_ratio: float
    least_ratio: float

    def beyond_ratio(self, error_ratio: float = BOOKS_ERROR_RATIO) -> float:
        """Return what does not fit, 0 where the books' error explains it or no entry lies beside another."""
        beyond = min(self.together_ratio - self.fits_ratio, self.together_ratio - self.covered_ratio)
        return beyond if beyond > error_ratio else 0.0

    @property
    def excess_ratio(self) -> float:
        """Return by how much the entries together exceed the least that they can have taken of the window."""
        return self.together_ratio / max(self.least_ratio, _LEAST_RATIO) - 1.0


def time_overlap(
    evidence: Evidence, shares: Sequence[BusyShare], timings: Timings, gaps: IdleGaps | None
) -> TimeOverlap | None:
    """Return how the sum of all entries compares with the time there was; None without times.

    The GPU's busy time limits it, or the whole window where less than a second of utilisation is known.
    """
    length_s = evidence.window.length_s
    if not len(timings.at_ns) or length_s <= 0.0:
        return None
    together = float(timings.took_s.sum()) * timings.calls_count / length_s
    idle_ratio = float((gaps.end_ns - gaps.begin_ns).sum()) / evidence.window.length_ns if gaps is not None else 0.0
    if together > 1.0 - idle_ratio:
        # What the last entries take beyond the window's end is no time of the window.
        late_s = (timings.at_ns - evidence.window.end_ns) / 1e9 + timings.took_s * timings.calls_count
        together -= float(late_s[late_s > 0.0].sum()) / length_s
    covered = min(together, 1.0 - idle_ratio)
    busy = gauge_share(shares) if evidence.window.length_ns >= SHORTEST_NS else None
    if busy is None:
        return TimeOverlap(together_ratio=together, covered_ratio=covered, fits_ratio=1.0, least_ratio=covered)
    fits = busy.most_ratio + launches_ratio(timings, length_s) + GAUGE_ERROR_RATIO
    return TimeOverlap(
        together_ratio=together,
        covered_ratio=covered,
        fits_ratio=min(1.0, fits),
        least_ratio=min(covered, busy.least_ratio - BOOKS_ERROR_RATIO),
    )


def overlap_bounds(overlap: TimeOverlap, rule: str, *, error_ratio: float = BOOKS_ERROR_RATIO) -> tuple[Bound, ...]:
    """Return how far entries that overlap can have moved each number; empty where they fit one after the other.

    Either more calls were told than ran, or each time holds some of another call's.  On several streams both are honest: the
    times are then latencies, and no cost of a call.  So nothing is sure, and nothing rejects.
    """
    if overlap.beyond_ratio(error_ratio) == 0.0:
        return ()
    return tuple(
        Bound(number=number, rule=rule, group=Group.BOOKS, ratio=overlap.excess_ratio)
        for number in (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)
    )
