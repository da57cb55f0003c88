"""The options of a store: what it may hold, and the facts that every file it begins depends on."""

from collections.abc import Callable
from dataclasses import dataclass

LEAST_SEGMENT_BYTES = 256 << 10  # an empty one takes 76 kB: a page for each table and index


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """The limits of a store: its size, the age of readings, and how long one may wait for its commit."""

    budget_bytes: int = 2 << 30
    max_age_s: float = 30 * 86_400.0
    segment_bytes: int = 64 << 20
    commit_s: float = 0.5
    rest_commit_s: float = 5.0  # while every GPU is idle and looked at rarely: a commit takes a millisecond

    @property
    def evidence_bytes(self) -> int:
        """Packed evidence and windows may take half of the budget: the readings keep the other half."""
        return self.budget_bytes // 2

    @property
    def fitting_segment_bytes(self) -> int:
        """A segment is small enough that dropping one makes a difference to the budget."""
        return max(LEAST_SEGMENT_BYTES, min(self.segment_bytes, self.budget_bytes // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFacts:
    """Facts of the writer: where the readings come from, this boot, its clocks, the mode of its files."""

    source: str
    boot_id: str
    mode: int
    now_ns: Callable[[], int]
    wall_offset_ns: Callable[[], int]

    def wall_s(self, at_ns: int) -> float:
        """Wall time at a monotonic time of this boot, by the offset of now."""
        return (at_ns + self.wall_offset_ns()) / 1e9
