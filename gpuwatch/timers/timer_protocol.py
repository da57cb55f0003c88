"""The protocol of timers, from a plan to times."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

import numpy as np

from annotate.evidence import OtherWork, Timings

Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimingPlan:
    """The work to time: each entry runs ``before`` untimed, then ``calls_count`` calls, cycling through ``calls``.

    Several ``calls`` are one function with different inputs.  The time of an entry is the mean time of its calls.
    """

    calls: tuple[Call, ...]
    calls_count: int = 1
    before: Callable[[], None] | None = None

    def entry(self) -> tuple[Call, ...]:
        """Return the calls of one entry, the same for every entry, so that all entries do the same work."""
        return tuple(islice(cycle(self.calls), self.calls_count))


@dataclass(frozen=True, slots=True)
class TimedEntries:
    """The times of entries, with the host's launch time and the GPU's working time.

    ``issue_s`` is the host's time to launch one call.  ``busy_s`` is the GPU's total working time, with ``other``.  For the
    host's timer ``issue_s`` and ``busy_s`` are None.
    """

    timings: Timings
    issue_s: float | None = None
    busy_s: float | None = None
    other: OtherWork | None = None  # flushes, holds and untimed entries
    starved_count: int = 0  # number of entries for whose launch the GPU waited


def joined(pieces: Sequence[Timings]) -> Timings:
    """Join chunks of entries that have the same number of calls."""
    clocks = [np.full(len(piece.at_ns), np.nan) if piece.sm_clock_mhz is None else piece.sm_clock_mhz for piece in pieces]
    clock = np.concatenate(clocks) if any(np.isfinite(one).any() for one in clocks) else None
    at_ns = np.concatenate([piece.at_ns for piece in pieces])
    return Timings(at_ns, np.concatenate([piece.took_s for piece in pieces]), clock, pieces[0].calls_count)


def joined_other_work(pieces: Iterable[OtherWork | None]) -> OtherWork | None:
    """Join other work of several chunks; None without any."""
    known = [piece for piece in pieces if piece is not None]
    if not known:
        return None
    kinds = tuple(kind for piece in known for kind in piece.kinds)
    return OtherWork(np.concatenate([each.at_ns for each in known]), np.concatenate([each.took_s for each in known]), kinds)


def do_nothing() -> None:
    """Do nothing, as the work around which a timer reads its overhead."""


class Timer(Protocol):
    """A way to time calls; ``name`` is declared with the times."""

    name: str

    def overhead_s(self) -> float:
        """Return the timer's reading around no work."""

    def take(self, plan: TimingPlan, entries_count: int) -> TimedEntries:
        """Time ``entries_count`` entries in sequence, and wait for their end.  Exceptions of a call propagate.

        Untimed entries may still run afterwards, to keep the GPU busy until the next take: ``rest`` waits for them.
        """

    def rest(self) -> None:
        """Wait until the GPU has finished all work that this timer launched."""
