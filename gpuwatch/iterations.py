"""Times of iterations on their way: arrays as messages, messages as arrays, and how many a window may have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from annotate.evidence import Timings
from gpuwatch import wire
from gpuwatch.errors import UsageError


def recorded(times: Iterable[float] | Timings, at_ns: Iterable[int] | None, begin_ns: int, now_ns: int) -> Timings:
    """Times a caller took, in seconds, as iterations; without beginnings they ran back to back until now.

    Raises UsageError for what is no time.
    """
    if isinstance(times, Timings):
        return times
    try:
        took_s = np.array(list(times), np.float64)
        begins_ns = None if at_ns is None else np.array(list(at_ns), np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"record: expected durations in seconds; {error}") from error
    if took_s.ndim != 1 or not len(took_s) or not (np.isfinite(took_s) & (took_s >= 0)).all():
        raise UsageError("record: expected at least one duration in seconds, none negative or NaN")
    if begins_ns is None:
        ended_ns = np.cumsum(took_s * 1e9)
        # Times that sum up to more than there was (of several streams, or not seconds) are spread over what there was.
        scale = min(1.0, (now_ns - begin_ns) / ended_ns[-1]) if ended_ns[-1] > 0 else 1.0
        begins_ns = now_ns - ((ended_ns[-1] - ended_ns + took_s * 1e9) * scale).astype(np.int64)
    if begins_ns.shape != took_s.shape:
        raise UsageError(f"record: expected as many beginnings as times, found {len(begins_ns)} and {len(took_s)}")
    return Timings(begins_ns, took_s)


def messages(run: str, timings: Timings) -> Iterator[wire.Times]:
    """Messages of bounded size; what exceeds the most a window may have is put together in batches first."""
    kept = batched(timings, -(-len(timings.at_ns) // wire.TIMES_COUNT))
    for first in range(0, len(kept.at_ns), wire.TIMES_AT_ONCE_COUNT):
        piece = slice(first, first + wire.TIMES_AT_ONCE_COUNT)
        clock = kept.sm_clock_mhz
        yield wire.Times(
            run=run, at_ns=kept.at_ns[piece].astype("<i8").tobytes(), took_s=kept.took_s[piece].astype("<f8").tobytes(),
            sm_clock_mhz=b"" if clock is None else clock[piece].astype("<f4").tobytes(), calls_count=kept.calls_count,
        )  # fmt: skip


def batched(timings: Timings, size: int) -> Timings:
    """Every so many iterations as one: when the first began, and the mean of their times and clocks; a rest is left out."""
    if size <= 1:
        return timings
    count = len(timings.at_ns) // size * size

    def means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(values[:count].reshape(-1, size).mean(axis=1))

    return Timings(
        timings.at_ns[:count:size],
        means(timings.took_s),
        None if timings.sm_clock_mhz is None else means(timings.sm_clock_mhz),
        timings.calls_count * size,
    )


def timings(pieces: Sequence[wire.Times]) -> Timings | None:
    """The iterations of a window's messages; None of none."""
    if not pieces:
        return None
    clocks = [np.frombuffer(piece.sm_clock_mhz, "<f4") for piece in pieces]
    clock = np.concatenate(clocks).astype(np.float64) if all(piece.sm_clock_mhz for piece in pieces) else None
    return Timings(
        np.concatenate([np.frombuffer(piece.at_ns, "<i8") for piece in pieces]).astype(np.int64),
        np.concatenate([np.frombuffer(piece.took_s, "<f8") for piece in pieces]).astype(np.float64),
        clock,
        pieces[0].calls_count,
    )


def check(piece: wire.Times, before: Sequence[wire.Times]) -> None:
    """Raises UsageError for arrays that do not fit each other, the window's earlier ones, or what a window may have."""
    count = len(piece.at_ns) // 8
    if count < 1 or len(piece.at_ns) != 8 * count or len(piece.took_s) != 8 * count:
        raise UsageError(f"times: expected as many times as beginnings, found {len(piece.took_s)} and {len(piece.at_ns)} bytes")
    if piece.sm_clock_mhz and len(piece.sm_clock_mhz) != 4 * count:
        raise UsageError(f"times: expected {4 * count} bytes of clocks, found {len(piece.sm_clock_mhz)}")
    if piece.calls_count < 1 or (before and before[0].calls_count != piece.calls_count):
        expected = before[0].calls_count if before else "at least 1"
        raise UsageError(f"times: expected calls_count {expected}, found {piece.calls_count}")
    total = count + sum(len(other.at_ns) // 8 for other in before)
    if total > wire.TIMES_COUNT:
        raise UsageError(f"times: expected at most {wire.TIMES_COUNT} of a window, found {total}")
    took_s = np.frombuffer(piece.took_s, "<f8")
    if not (np.isfinite(took_s) & (took_s >= 0)).all():
        raise UsageError("times: expected durations in seconds, found one that is negative or not a number")
