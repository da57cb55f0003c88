"""One signal over time, as arrays; NaN where it was not observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[np.float64]

GRID_COUNT = 500_000  # about the largest number of grid times: 83 minutes at 10 ms


@dataclass(frozen=True, slots=True)
class Column:
    """One signal over time: ``at_ns`` ascending, ``values`` of the same length, NaN where not observed."""

    at_ns: Times
    values: Values

    def __len__(self) -> int:
        return len(self.at_ns)

    @property
    def observed(self) -> Column:
        """Return the rows that hold a value."""
        unknown = np.isnan(self.values)
        return self.where(~unknown) if unknown.any() else self

    def where(self, rows: npt.NDArray[np.bool_]) -> Column:
        """Return the rows that a mask selects."""
        return Column(self.at_ns[rows], self.values[rows])

    def mean(self) -> float | None:
        """Return the mean of the observed rows; None without rows, or if fewer than half were observed."""
        known = self.observed.values
        return float(known.mean()) if len(known) and 2 * len(known) >= len(self) else None


EMPTY = Column(np.empty(0, np.int64), np.empty(0, np.float64))


def grid(begin_ns: int, end_ns: int, step_ns: int) -> Times:
    """Return times from start (inclusive) to end (exclusive) at this step, or at a longer one over a long span.

    Without the longer step, each call over a day at 10 ms would return 9 million times.
    """
    return np.arange(begin_ns, end_ns, max(step_ns, (end_ns - begin_ns) // GRID_COUNT), dtype=np.int64)
