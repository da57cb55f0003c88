"""Timed entries whose sum exceeds the time that the GPU had to run them one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from annotate.budget import Bound, Group, Number
from annotate.derived.busy_share import BusyShare, gauge_share
from annotate.derived.idle_gaps import IdleGaps
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO, GAUGE_ERROR_RATIO, SHORTEST_NS, launches_ratio
from annotate.evidence import Evidence, Timings

_LEAST_RATIO = 1e-3  # lower limit of the divisor, as a part of the window


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOverlap:
    """The sum of all entries, the most that fits and the least they can have taken, as shares of the window.

    A stream runs its calls one after the other.  If entries sum to more than the GPU's busy time, they ran in parallel,
    enclose each other's work or were declared twice.  The evidence does not separate these cases.
    """

    together_ratio: float
    covered_ratio: float  # the window's share that any entry covers
    fits_ratio: float
    least_ratio: float

    def beyond_ratio(self, error_ratio: float = BOOKS_ERROR_RATIO) -> float:
        """Return the share that does not fit; 0 if the books' error explains it or no entries overlap."""
        beyond = min(self.together_ratio - self.fits_ratio, self.together_ratio - self.covered_ratio)
        return beyond if beyond > error_ratio else 0.0

    @property
    def excess_ratio(self) -> float:
        """Return the relative excess of the entries' sum over the least that they can have taken."""
        return self.together_ratio / max(self.least_ratio, _LEAST_RATIO) - 1.0


def time_overlap(
    evidence: Evidence, shares: Sequence[BusyShare], timings: Timings, gaps: IdleGaps | None
) -> TimeOverlap | None:
    """Return the sum of all entries against the available time; None without times.

    The available time is the GPU's busy time; in a window below 1 s, or without utilisation, it is the whole window.
    """
    length_s = evidence.window.length_s
    if not len(timings.at_ns) or length_s <= 0.0:
        return None
    together = float(timings.took_s.sum()) * timings.calls_count / length_s
    idle_ratio = float((gaps.end_ns - gaps.begin_ns).sum()) / evidence.window.length_ns if gaps is not None else 0.0
    if together > 1.0 - idle_ratio:
        # Entries may extend beyond the window's end: that part does not count.
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
    """Return the bound of each number for entries that overlap; empty if they fit one after the other.

    Either more calls were declared than ran, or each time includes part of another call.  Honest times on several streams
    also overlap; they are latencies, not costs per call.  The bounds therefore have no estimate and cannot reject.
    """
    if overlap.beyond_ratio(error_ratio) == 0.0:
        return ()
    return tuple(
        Bound(number=number, rule=rule, group=Group.BOOKS, ratio=overlap.excess_ratio)
        for number in (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)
    )
