"""The circumstances of a window: declared other work, pauses of the host, other windows, and the work's record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotate.evidence.column import Times, Values


@dataclass(frozen=True, slots=True, eq=False)
class OtherWork:
    """Work inside a window that its process declares and did not time as iterations.

    Raises nothing.

    Attributes:
        at_ns: Start times on ``time.monotonic_ns``, in nanoseconds; an int64 array of shape (n,).
        took_s: Durations in seconds; a float64 array of shape (n,).
        kinds: Word for each piece, such as flush, warm-up or filler.

    Example:
        >>> import numpy as np
        >>> from annotate.evidence import OtherWork
        >>> OtherWork(np.array([0]), np.array([0.001]), ("flush",)).spans_ns
        ((0, 1000000),)
    """

    at_ns: Times
    took_s: Values
    kinds: tuple[str, ...]

    @property
    def spans_ns(self) -> tuple[tuple[int, int], ...]:
        """Return start and end of each piece, in nanoseconds."""
        ends_ns = self.at_ns + (self.took_s * 1e9).astype("int64")
        return tuple(zip(self.at_ns.tolist(), ends_ns.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Pause:
    """An interval in which the host did not launch work, and the cause."""

    begin_ns: int
    end_ns: int
    cause: str  # such as collector or run-queue


@dataclass(frozen=True, slots=True)
class OtherWindow:
    """Another window that overlaps this one on the same GPU; a window of this window's processes counts as nested."""

    begin_ns: int
    end_ns: int
    pid: int | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedWindow:
    """The numbers of one earlier VALID window of this work on this card.  A missing number is None."""

    calls_rate_hz: float | None = None
    mean_s: float | None = None
    median_s: float | None = None
    median_at_clock_s: float | None = None
    steady_clock_mhz: float | None = None
    power_w: float | None = None
    clock_mhz: float | None = None  # clock of median_at_clock_s


@dataclass(frozen=True, slots=True)
class WorkRecord:
    """VALID windows of one ``WorkKey`` (label, program, card, driver, power limit, policy, claim's facts), oldest first.

    A number needs five windows.  ``clock_mhz`` is the clock of ``median_at_clock_s``.
    """

    windows: tuple[RecordedWindow, ...] = ()
    clock_mhz: float | None = None

    def values(self, name: str) -> tuple[float, ...]:
        """Return the known values of one field; empty if fewer than five windows have a value."""
        known = tuple(value for each in self.windows if (value := getattr(each, name)) is not None)
        return known if len(known) >= RECORD_COUNT else ()


RECORD_COUNT = 5  # windows: the specification accepts no smaller record
