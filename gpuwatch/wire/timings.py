"""Times of iterations: arrays to messages, messages to arrays, and the bounds of both."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from annotate.evidence import Timings
from gpuwatch.errors import UsageError
from gpuwatch.wire import messages as wire
from gpuwatch.wire.recorded_times import IMPOSSIBLE, LONGEST_S, RecordedTimes

CALLS_COUNT = 1 << 40  # in one time


def mend(timings: Timings, complain: Callable[[str], object] = len) -> Timings:
    """Return times a caller hands over as arrays; what is no duration becomes zero, which the judge rejects.  It raises nothing."""
    sound = _are_each_durations(timings.took_s)
    if sound.all() or timings.took_s.ndim != 1:
        return timings
    complain(f"expected durations in seconds, found {timings.took_s[~sound][0]}; {IMPOSSIBLE}")
    return Timings(timings.at_ns, np.where(sound, timings.took_s, 0.0), timings.sm_clock_mhz, timings.calls_count)


def recorded(
    times: Iterable[float] | Timings,
    at_ns: Iterable[int] | None,
    begin_ns: int,
    now_ns: int,
    complain: Callable[[str], object] = len,
) -> Timings:
    """Make iterations of times a caller took, as ``RecordedTimes.add`` and ``mend``."""
    if isinstance(times, Timings):
        return mend(times, complain)
    kept = RecordedTimes()
    kept.add(times, at_ns, begin_ns, now_ns, complain)
    return kept.timings()


def encode(run: str, timings: Timings) -> Iterator[wire.Times]:
    """Make messages of bounded size; more times than a window may have are averaged in batches first."""
    sent = batched(timings, -(-len(timings.at_ns) // wire.TIMES_COUNT))
    for first in range(0, len(sent.at_ns), wire.TIMES_AT_ONCE_COUNT):
        piece = slice(first, first + wire.TIMES_AT_ONCE_COUNT)
        clock = sent.sm_clock_mhz
        yield wire.Times(
            run=run,
            at_ns=sent.at_ns[piece].astype("<i8").tobytes(),
            took_s=sent.took_s[piece].astype("<f8").tobytes(),
            sm_clock_mhz=b"" if clock is None else clock[piece].astype("<f4").tobytes(),
            calls_count=sent.calls_count,
        )


def sort_by_begin(timings: Timings) -> Timings:
    """Sort iterations by their beginnings: nested ones, and those of several threads, end in another order than they begin."""
    if (np.diff(timings.at_ns) >= 0).all():
        return timings
    order = np.argsort(timings.at_ns, kind="stable")
    clocks_mhz = None if timings.sm_clock_mhz is None else timings.sm_clock_mhz[order]
    return Timings(timings.at_ns[order], timings.took_s[order], clocks_mhz, timings.calls_count)


def batched(timings: Timings, size: int) -> Timings:
    """Merge every ``size`` iterations into one: the first beginning, the mean times and clocks; a remainder is dropped."""
    if size <= 1:
        return timings
    count = len(timings.at_ns) // size * size

    def means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(values[:count].reshape(-1, size).mean(axis=1))

    # A batch with an impossible time in it is impossible.
    took_s = np.where((timings.took_s[:count].reshape(-1, size) > 0.0).all(axis=1), means(timings.took_s), 0.0)
    return Timings(
        timings.at_ns[:count:size],
        took_s,
        None if timings.sm_clock_mhz is None else means(timings.sm_clock_mhz),
        timings.calls_count * size,
    )


def decode(pieces: Sequence[wire.Times]) -> Timings | None:
    """Return the iterations in a window's messages; None for no message."""
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


def check(piece: wire.Times, first: wire.Times | None, before_count: int) -> int:
    """Return how many times a message holds; ``first`` is the window's first message, ``before_count`` its times so far.

    Raises UsageError: when the arrays fit neither each other, nor the earlier messages, nor the bounds of a window.
    """
    count = len(piece.at_ns) // 8
    if count < 1 or len(piece.at_ns) != 8 * count or len(piece.took_s) != 8 * count:
        raise UsageError(f"times: expected as many times as beginnings, found {len(piece.took_s)} and {len(piece.at_ns)} bytes")
    if piece.sm_clock_mhz and len(piece.sm_clock_mhz) != 4 * count:
        raise UsageError(f"times: expected {4 * count} bytes of clocks, found {len(piece.sm_clock_mhz)}")
    if not 1 <= piece.calls_count <= CALLS_COUNT or (first is not None and first.calls_count != piece.calls_count):
        expected = first.calls_count if first is not None else f"from 1 to {CALLS_COUNT}"
        raise UsageError(f"times: expected calls_count {expected}, found {piece.calls_count}")
    if before_count + count > wire.TIMES_COUNT:
        raise UsageError(f"times: expected at most {wire.TIMES_COUNT} of a window, found {before_count + count}")
    if not _are_durations(np.frombuffer(piece.took_s, "<f8")):
        raise UsageError("times: expected durations in seconds, found one that is negative or not a number")
    return count


def _are_durations(took_s: npt.NDArray[np.float64]) -> bool:
    """Return whether every value is a plausible duration, or zero; NaN is neither."""
    return bool(_are_each_durations(took_s).all())


def _are_each_durations(took_s: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return np.asarray((took_s >= 0) & (took_s < LONGEST_S))
