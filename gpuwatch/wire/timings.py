"""Times of iterations: arrays to messages, messages to arrays, and the bounds of both."""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from annotate.evidence import Timings
from gpuwatch.errors import UsageError
from gpuwatch.utf8 import found_words
from gpuwatch.wire import messages as wire

LONGEST_S = 1e9  # thirty years: a longer one is not in seconds
_IMPOSSIBLE = "the verdict will call them impossible"
_BACK_TO_BACK = "the times are taken to have run back to back"
CALLS_COUNT = 1 << 40  # in one time


def recorded(
    times: Iterable[float] | Timings,
    at_ns: Iterable[int] | None,
    begin_ns: int,
    now_ns: int,
    complain: Callable[[str], object] = len,
) -> Timings:
    """Make iterations of times a caller took, in seconds; without beginnings they ran back to back until now.

    It raises nothing, because a benchmark goes on: what is no duration becomes a time of zero, which no iteration can take
    and the judge rejects.  Beginnings that are none are left out.  ``complain`` is told either in words; by default nobody is.
    """
    if isinstance(times, Timings):
        sound = _are_each_durations(times.took_s)
        if sound.all() or times.took_s.ndim != 1:
            return times
        complain(f"expected durations in seconds, found {times.took_s[~sound][0]}; {_IMPOSSIBLE}")
        return Timings(times.at_ns, np.where(sound, times.took_s, 0.0), times.sm_clock_mhz, times.calls_count)
    took_s = _durations(times, complain)
    begins_ns = _begins(at_ns, len(took_s), complain) if at_ns is not None else None
    if begins_ns is None:
        ended_ns = np.cumsum(took_s * 1e9)
        total_ns = float(ended_ns[-1]) if len(ended_ns) else 0.0
        # Times that sum up to more than there was (of several streams, or not seconds) are spread over what there was.
        scale = (now_ns - begin_ns) / total_ns if total_ns > now_ns - begin_ns else 1.0
        begins_ns = now_ns - ((total_ns - ended_ns + took_s * 1e9) * scale).astype(np.int64)
    return Timings(begins_ns, took_s)


def _durations(times: Iterable[float], complain: Callable[[str], object]) -> npt.NDArray[np.float64]:
    """Read durations; each value that is none becomes zero, and so does an end by an exception."""
    found: list[float] = []
    refused: list[str] = []
    try:
        found.extend(_duration(one, refused) for one in times)  # keeps what came before an exception
    except Exception as error:  # noqa: BLE001 - the caller's iterable may fail in any way
        refused.append(f"{type(error).__name__}: {error}")
        found.append(0.0)
    if refused:
        complain(f"expected durations in seconds, found {refused[0]} ({len(refused)} of {len(found)}); {_IMPOSSIBLE}")
    elif not found:
        complain("expected durations in seconds, found none; the window is judged without them")
    return np.array(found, np.float64)


def _duration(one: Any, refused: list[str]) -> float:
    """Convert one value; zero, which it adds to what was refused, if it is no duration."""
    try:
        took_s = _number(one)
    except Exception as error:  # noqa: BLE001 - the caller's types may fail in any way
        refused.append(f"{type(error).__name__}: {error}")
        return 0.0
    if 0.0 < took_s < LONGEST_S:
        return took_s
    refused.append(f"{took_s:g} s")
    return 0.0


def _number(one: Any) -> float:  # of torch's or numpy's, or Python's own
    """Convert one duration.  Raises TypeError: for any array, for text, and for truth values, though float() takes them."""
    if getattr(one, "shape", ()):
        raise TypeError(f"found a row of shape {tuple(one.shape)}")
    dtype = getattr(one, "dtype", None)
    if getattr(dtype, "kind", "") == "c":  # numpy would drop the imaginary part with a warning
        raise TypeError(f"found a complex number {one}")
    if isinstance(one, bool | str | bytes | bytearray) or str(dtype).endswith("bool"):
        raise TypeError(f"found {found_words(one)}")
    return float(one)


def _begins(at_ns: Iterable[int], count: int, complain: Callable[[str], object]) -> npt.NDArray[np.int64] | None:
    """Convert beginnings to an array; None for fractions, which are seconds and would be cut silently, and for too few."""
    try:
        begins_ns = np.array([operator.index(one) for one in at_ns], np.int64)
    except Exception as error:  # noqa: BLE001 - the caller's iterable and types may fail in any way
        complain(f"at_ns: expected whole nanoseconds, as time.monotonic_ns() gives; {error}; {_BACK_TO_BACK}")
        return None
    if len(begins_ns) != count:
        complain(f"expected as many beginnings as times, found {len(begins_ns)} and {count}; {_BACK_TO_BACK}")
        return None
    return begins_ns


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
