"""A histogram that costs its writer a bisection: bounds fixed, counts in a list made once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Buckets:
    """Counts of values up to each bound, and above the last.  Its owner's lock guards it: an unguarded += could step back."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Buckets:
        """As it is now, for a page."""
        other = Buckets(self.bounds)
        other.counts, other.total = self.counts.copy(), self.total
        return other
