"""Times of iterations as arrays: repair of invalid times, sorting, batching, and conversion to messages."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from annotate.evidence import Timings
from gpuwatch.wire import messages as wire
from gpuwatch.wire.recorded_times import IMPOSSIBLE, LONGEST_S, RecordedTimes


def mend(timings: Timings, complain: Callable[[str], object] = len) -> Timings:
    """Return a caller's times with each invalid duration replaced by zero, which the judge rejects.  Never raises."""
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
    """Return iterations from a caller's times, by the rules of ``RecordedTimes.add`` and ``mend``."""
    if isinstance(times, Timings):
        return mend(times, complain)
    kept = RecordedTimes()
    kept.add(times, at_ns, begin_ns, now_ns, complain)
    return kept.timings()


def encode(run: str, timings: Timings) -> Iterator[wire.Times]:
    """Yield messages of bounded size; first average batches if there are more times than a window may have."""
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
    """Return iterations sorted by start time: nested iterations, and those of several threads, arrive in another order."""
    if (np.diff(timings.at_ns) >= 0).all():
        return timings
    order = np.argsort(timings.at_ns, kind="stable")
    clocks_mhz = None if timings.sm_clock_mhz is None else timings.sm_clock_mhz[order]
    return Timings(timings.at_ns[order], timings.took_s[order], clocks_mhz, timings.calls_count)


def batched(timings: Timings, size: int) -> Timings:
    """Merge every ``size`` iterations into one, with the first start time and mean times and clocks; drop a remainder."""
    if size <= 1:
        return timings
    count = len(timings.at_ns) // size * size

    def means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(values[:count].reshape(-1, size).mean(axis=1))

    # One impossible time makes its whole batch impossible.
    took_s = np.where((timings.took_s[:count].reshape(-1, size) > 0.0).all(axis=1), means(timings.took_s), 0.0)
    return Timings(
        timings.at_ns[:count:size],
        took_s,
        None if timings.sm_clock_mhz is None else means(timings.sm_clock_mhz),
        timings.calls_count * size,
    )


def _are_each_durations(took_s: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return np.asarray((took_s >= 0) & (took_s < LONGEST_S))
