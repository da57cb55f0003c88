"""The options of a store: its limits, and facts that every new file records."""

from collections.abc import Callable
from dataclasses import dataclass

LEAST_SEGMENT_BYTES = 256 << 10  # an empty segment already holds a page for each table and index


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Limits of a store: its size, the age of readings, and the delay of commits."""

    budget_bytes: int = 2 << 30
    max_age_s: float = 30 * 86_400.0
    segment_bytes: int = 64 << 20
    commit_s: float = 0.5
    rest_commit_s: float = 10.0  # while every GPU is idle and rarely read, without clients

    @property
    def evidence_bytes(self) -> int:
        """Return the size limit of packed evidence: half of the budget."""
        return self.budget_bytes // 2

    @property
    def fitting_segment_bytes(self) -> int:
        """Return the segment size: at most a quarter of the budget, but at least ``LEAST_SEGMENT_BYTES``."""
        return max(LEAST_SEGMENT_BYTES, min(self.segment_bytes, self.budget_bytes // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFacts:
    """Facts of the writer: the source of its readings, this boot, its clocks, the mode of its files."""

    source: str
    boot_id: str
    mode: int
    now_ns: Callable[[], int]
    wall_offset_ns: Callable[[], int]

    def wall_s(self, at_ns: int) -> float:
        """Return the wall time of a monotonic time of this boot, by the current offset."""
        return (at_ns + self.wall_offset_ns()) / 1e9
