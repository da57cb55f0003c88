"""Times of iterations in transit and in the store: bytes that the daemon checks and keeps, without numpy."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuwatch.errors import UsageError
from gpuwatch.wire import messages as wire
from gpuwatch.wire.recorded_times import LONGEST_S

if TYPE_CHECKING:
    from annotate.evidence import Timings

CALLS_COUNT = 1 << 40  # most calls in one time


@dataclass(frozen=True, slots=True)
class PackedTimes:
    """Iterations of a window: little-endian int64 of nanoseconds, float64 of seconds, float32 of MHz."""

    at_ns: bytes
    took_s: bytes
    sm_clock_mhz: bytes | None
    calls_count: int

    @property
    def count(self) -> int:
        return len(self.at_ns) // 8

    @staticmethod
    def of(timings: Timings) -> PackedTimes:
        clock = timings.sm_clock_mhz
        return PackedTimes(
            timings.at_ns.astype("<i8").tobytes(),
            timings.took_s.astype("<f8").tobytes(),
            None if clock is None else clock.astype("<f4").tobytes(),
            timings.calls_count,
        )

    def unpacked(self) -> Timings:
        """Return arrays.

        Raises ValueError: for a length that is not a multiple of the item size.
        """
        import numpy as np  # needed only in the judge's worker and in reports

        from annotate.evidence import Timings

        clock = self.sm_clock_mhz
        return Timings(
            np.frombuffer(self.at_ns, "<i8").astype(np.int64),
            np.frombuffer(self.took_s, "<f8").astype(np.float64),
            None if clock is None else np.frombuffer(clock, "<f4").astype(np.float64),
            self.calls_count,
        )


def messages(run: str, times: Timings | PackedTimes) -> Iterator[wire.Times]:
    """Yield messages of bounded size."""
    if not isinstance(times, PackedTimes):
        from gpuwatch.wire.timings import encode  # imports numpy, which a process without such arrays does not need

        yield from encode(run, times)
        return
    for first in range(0, times.count, wire.TIMES_AT_ONCE_COUNT):
        last = first + wire.TIMES_AT_ONCE_COUNT
        clock = times.sm_clock_mhz
        yield wire.Times(
            run=run,
            at_ns=times.at_ns[8 * first : 8 * last],
            took_s=times.took_s[8 * first : 8 * last],
            sm_clock_mhz=b"" if clock is None else clock[4 * first : 4 * last],
            calls_count=times.calls_count,
        )


def joined(pieces: Sequence[wire.Times]) -> PackedTimes | None:
    """Return the iterations in a window's checked messages; None without messages."""
    if not pieces:
        return None
    has_clock = all(piece.sm_clock_mhz for piece in pieces)
    return PackedTimes(
        b"".join(piece.at_ns for piece in pieces),
        b"".join(piece.took_s for piece in pieces),
        b"".join(piece.sm_clock_mhz for piece in pieces) if has_clock else None,
        pieces[0].calls_count,
    )


def check(piece: wire.Times, first: wire.Times | None, before_count: int) -> int:
    """Return the count of times in a message; ``first`` is the window's first message, ``before_count`` its earlier times.

    Raises UsageError: when arrays contradict each other or earlier messages, exceed a window's bounds, or hold invalid values.
    """
    count = len(piece.at_ns) // 8
    if count < 1 or len(piece.at_ns) != 8 * count or len(piece.took_s) != 8 * count:
        found = f"{len(piece.took_s)} and {len(piece.at_ns)} bytes"
        raise UsageError(f"times: expected as many bytes of durations as of start times, found {found}")
    if piece.sm_clock_mhz and len(piece.sm_clock_mhz) != 4 * count:
        raise UsageError(f"times: expected {4 * count} bytes of clocks, found {len(piece.sm_clock_mhz)}")
    if not 1 <= piece.calls_count <= CALLS_COUNT or (first is not None and first.calls_count != piece.calls_count):
        expected = first.calls_count if first is not None else f"from 1 to {CALLS_COUNT}"
        raise UsageError(f"times: expected calls_count {expected}, found {piece.calls_count}")
    if before_count + count > wire.TIMES_COUNT:
        raise UsageError(f"times: expected at most {wire.TIMES_COUNT} per window, found {before_count + count}")
    if not _are_durations(piece.took_s):
        raise UsageError("times: expected durations in seconds, found one that is negative, not a number, or 1e9 s or longer")
    return count


def _are_durations(took_s: bytes) -> bool:
    """Return True if every value is a plausible duration or zero.  The sum shows whether any value is NaN."""
    values = array("d", took_s)
    return min(values) >= 0.0 and max(values) < LONGEST_S and not math.isnan(sum(values))
