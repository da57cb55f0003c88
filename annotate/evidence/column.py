"""One signal over time, as arrays; NaN where it was not observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[np.float64]

GRID_COUNT = 500_000  # points of a grid at most: 10 ms over 83 minutes


@dataclass(frozen=True, slots=True)
class Column:
    """One signal over time: ``at_ns`` ascending, ``values`` of the same length, NaN where not observed."""

    at_ns: Times
    values: Values

    def __len__(self) -> int:
        return len(self.at_ns)

    @property
    def observed(self) -> Column:
        """The rows that hold a value."""
        unknown = np.isnan(self.values)
        return self.where(~unknown) if unknown.any() else self

    def where(self, rows: npt.NDArray[np.bool_]) -> Column:
        """The rows that a mask names."""
        return Column(self.at_ns[rows], self.values[rows])

    def mean(self) -> float | None:
        """Return the mean of what was observed; None where less than half was."""
        known = self.observed.values
        return float(known.mean()) if len(known) and 2 * len(known) >= len(self) else None


EMPTY = Column(np.empty(0, np.int64), np.empty(0, np.float64))


def grid(begin_ns: int, end_ns: int, step_ns: int) -> Times:
    """Times from begin (inclusive) to end (exclusive), so far apart or, over long spans, as far as their number demands.

    A day at 10 ms would be 9 million points for every question a rule asks.
    """
    return np.arange(begin_ns, end_ns, max(step_ns, (end_ns - begin_ns) // GRID_COUNT), dtype=np.int64)
