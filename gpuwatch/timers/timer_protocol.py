"""What every way to time a call has in common: a plan goes in, times come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

import numpy as np

from annotate.evidence import Timings

Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimingPlan:
    """What to time: ``calls`` in turn, so many of them an entry, and what is done before each entry, untimed.

    Several calls are one function with different inputs; an entry of several holds the mean time of one.
    """

    calls: tuple[Call, ...]
    calls_count: int = 1
    before: Callable[[], None] | None = None

    def entry(self) -> tuple[Call, ...]:
        """The calls of one entry: always the same ones, so that every entry does the same work."""
        return tuple(islice(cycle(self.calls), self.calls_count))


@dataclass(frozen=True, slots=True)
class TimedEntries:
    """The times of some entries, and what else is known of how they were taken.

    ``issue_s`` is how long the host took to ask for one call, ``busy_s`` for how long the GPU was kept at work in all, by
    flushes and holds too; None where host and call are one.
    """

    timings: Timings
    issue_s: float | None = None
    busy_s: float | None = None


def joined(pieces: Sequence[Timings]) -> Timings:
    """One series of chunks of entries of the same number of calls."""
    clocks = [np.full(len(piece.at_ns), np.nan) if piece.sm_clock_mhz is None else piece.sm_clock_mhz for piece in pieces]
    clock = np.concatenate(clocks) if any(np.isfinite(one).any() for one in clocks) else None
    at_ns = np.concatenate([piece.at_ns for piece in pieces])
    return Timings(at_ns, np.concatenate([piece.took_s for piece in pieces]), clock, pieces[0].calls_count)


class Timer(Protocol):
    """One way to time a call.  ``name`` is what is told of it."""

    name: str

    def overhead_s(self) -> float:
        """What it reads around nothing."""
        ...

    def take(self, plan: TimingPlan, entries_count: int) -> TimedEntries:
        """So many entries, one after the other; it waits until they are done.  What a call raises passes."""
        ...
