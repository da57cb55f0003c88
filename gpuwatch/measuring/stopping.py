"""The end of measuring: a narrow interval that includes autocorrelation, after the shortest time, or the longest time."""

from enum import StrEnum
from typing import Annotated

import numpy as np

from annotate.evidence import Timings
from annotate.stats.intervals import Interval, batch_interval


class Stopped(StrEnum):
    """The reason for the end of a measurement."""

    TARGET = "target"  # the interval is narrow enough
    LIMIT = "time limit"


class Stopping:
    """The decision to stop, taken between chunks and ever more rarely, because each decision leaves the GPU idle."""

    def __init__(
        self,
        *,
        least_s: float,
        most_s: float,
        target_ratio: float,
        growth_ratio: Annotated[float, "ratio of the times of consecutive decisions; many decisions could stop by luck"] = 1.2,
    ) -> None:
        self._most_s = most_s
        self._target_ratio = target_ratio
        self._growth_ratio = growth_ratio
        self._next_s = min(least_s, most_s)
        self.least_s = self._next_s
        self.interval: Interval | None = None
        # The first interval of a process imports scipy; during a later import the GPU would cool.
        batch_interval(np.arange(400) * 10_000_000, np.ones(400))

    def require(self, least_s: float) -> None:
        """Require ``least_s`` in total, such as after late evidence of a power cap."""
        self.least_s = min(max(self.least_s, least_s), self._most_s)
        self._next_s = max(self._next_s, self.least_s)

    def is_due(self, spent_s: float) -> bool:
        return spent_s >= self._next_s or spent_s >= self._most_s

    def decide(self, timings: Timings, spent_s: float) -> Stopped | None:
        """Return the reason to stop, or None to continue."""
        self.interval = batch_interval(timings.at_ns, timings.took_s)
        if self.interval is not None and self.interval.half_width_ratio <= self._target_ratio:
            return Stopped.TARGET
        if spent_s >= self._most_s:
            return Stopped.LIMIT
        self._next_s = max(self._next_s, spent_s) * self._growth_ratio
        return None
