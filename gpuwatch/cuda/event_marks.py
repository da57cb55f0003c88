"""The edges of iterations and other work on the GPU: an event for the time, a stamp for the clock of an iteration."""

import contextlib
import struct
from array import array
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any

import numpy as np
import numpy.typing as npt

from annotate.evidence import Timings
from gpuwatch import clock
from gpuwatch.cuda.cuda_events import make_events
from gpuwatch.cuda.launch_probe import LaunchProbe
from gpuwatch.cuda.stamp import Stamps, thinned
from gpuwatch.wire.messages import TIMES_COUNT, FactValue
from gpuwatch.wire.timings import sort_by_begin

Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]
TIMED = -1  # marks an iteration, in place of a word's number
_ROW = struct.Struct("=qqqqq")
_COLUMNS_COUNT = 5
_NO_STAMP = -1
_SPREADS_COUNT = 1000  # most stamps whose spread over the SMs is checked
_ANCHOR = 0  # number of the event at time zero
_EVENTS_COUNT = 8 * TIMES_COUNT  # start marks without an end use events, too; the last TIMES_COUNT are for ends
_PIECE_COUNT = 64  # elapsed times between two rests
_READ_AT_ONCE_COUNT = 500  # marked pieces; reading more takes a thread (docs/decisions/0070)
_SHIFT = 32  # a begun mark is one number: its event above these bits, its stamp plus one below


class CudaMarks:
    """Events and stamps on torch's current stream.

    A stamp lies outside the iteration's events and adds nothing to the iteration's time (docs/decisions/0011).
    Without room for stamps, times continue without a clock.
    """

    timer = "events"

    def __init__(self, cuda: Any, count: int, driver: Any = None) -> None:  # neither torch.cuda nor cuda-bindings has types
        self._cuda = cuda
        self._cuda.current_stream().synchronize()
        self._events = make_events(cuda)
        self._events.prepare(_ANCHOR)
        self._events.record(_ANCHOR)
        self._events.synchronize(_ANCHOR)
        self._anchor_ns = clock.now_ns()
        # First and last event, first and last stamp, and word of each piece, in one array: marking creates no object that
        # Python's collector tracks.
        self._rows = array("q")
        self._timed_count = self._other_count = 0
        self._numbers = iter(range(_ANCHOR + 1, _EVENTS_COUNT))
        self._spread_s: float | None = None
        self._seen_ratio: float | None = None
        self._is_open = True
        self._probe = LaunchProbe(clock.now_ns)
        self._stamps = Stamps.allocate(2 * count, driver)
        self._rest: Callable[[], None] = lambda: None
        self._stream: int | None = None  # stream of the thread that reads while the program continues

    def declared(self) -> dict[str, FactValue]:
        declared = {"timer": self.timer} | self._probe.declared()
        if self._spread_s is None:
            return declared
        return declared | {"stamp_spread_s": self._spread_s, "stamp_seen_ratio": self._seen_ratio}

    def _stamp(self) -> int:
        return self._stamps.put() if self._stamps is not None else -1

    def reserve(self, count: int) -> None:
        """Make room for the events of this many more iterations, if that speeds up the loop."""
        used_count = _EVENTS_COUNT - length_hint(self._numbers)
        self._events.reserve(used_count + 2 * min(count, TIMES_COUNT))

    def _begin_event(self) -> int:
        """Record the next event on the current stream, and return its number; also create the event for the end."""
        number = next(self._numbers)
        self._events.prepare(number + 1)
        self._events.record(number)
        return number

    def _end_event(self) -> int:
        number = next(self._numbers)
        self._events.prepare(number)  # another thread or a nested piece may have used the event created beforehand
        self._events.record(number)
        return number

    def _is_left_out(self, word: int) -> bool:
        count = self._timed_count if word == TIMED else self._other_count
        return bool(count >= TIMES_COUNT or not self._is_open or self._cuda.is_current_stream_capturing())

    def begin(self, word: int = TIMED) -> int | None:
        """Mark the start of an iteration, or of other work with the number ``word``; return None if nothing is marked."""
        if self._is_left_out(word) or length_hint(self._numbers) <= TIMES_COUNT:
            return None
        stamp = self._stamp() if word == TIMED else _NO_STAMP
        number = self._begin_event()
        if word == TIMED:
            self._probe.begin(number)
        return number << _SHIFT | (stamp + 1)

    def end(self, begun: int, word: int = TIMED) -> int | None:
        """Mark the end; return the stamp's number (−1 without a stamp), or None if the piece is left out."""
        if self._is_left_out(word):
            return None
        first, first_stamp = begun >> _SHIFT, (begun & ((1 << _SHIFT) - 1)) - 1
        is_probed = word == TIMED and self._probe.end(first)
        event = self._end_event()
        stamp = self._stamp() if word == TIMED else _NO_STAMP
        if is_probed:
            self._probe.note(is_reached=self._events.is_done(first))
        self._rows.frombytes(_ROW.pack(first, event, first_stamp, stamp, word))
        if word == TIMED:
            self._timed_count += 1
        else:
            self._other_count += 1
        return stamp

    def next(self, begun: int) -> int | None:
        stamp = self.end(begun)
        if stamp is None:
            return self.begin()
        number = self._begin_event()
        self._probe.begin(number)
        return number << _SHIFT | (stamp + 1)  # one stamp ends an iteration and begins the next

    def settle(self) -> bool:
        """Stop marking; return True if a separate thread must read the marks: more than 500, with stamps, outside a capture.

        Without that thread the GPU would idle while many iterations are read (docs/decisions/0070).
        """
        self._is_open = False
        is_long = self._timed_count + self._other_count > _READ_AT_ONCE_COUNT
        if self._stamps is None or not is_long or self._cuda.is_current_stream_capturing():
            return False
        self._stamps.calibrate()  # on the program's stream, because the other thread does not use it
        return True

    @contextlib.contextmanager
    def reading_beside(self, rest: Callable[[], None]) -> Iterator[None]:
        """Let the calling thread read and close these marks while the program continues, after ``settle`` returned True.

        Between two pieces of work the thread calls ``rest``, which may wait.
        Raises RuntimeError: when the marks are closed, or the driver refuses.
        """
        if self._stamps is None:
            raise RuntimeError("marks: expected open marks, found closed ones")
        self._rest = rest
        with self._stamps.reading_thread() as self._stream:
            yield

    def close(self) -> None:
        """Release the events and stamps; later iterations get no mark."""
        stamps, self._stamps, self._is_open = self._stamps, None, False
        self._events.close()
        if stamps is not None:
            stamps.close(is_beside=self._stream is not None)

    def timings(self) -> Timings | None:
        """Return the marked iterations in the order of their start times; None without any, or during a capture."""
        found = self._read(is_timed=True)
        if found is None:
            return None
        rows, at_ns, took_s = found
        return sort_by_begin(Timings(at_ns, took_s, self._clocks_mhz(rows)))

    def other_work(self) -> Iterator[tuple[int, int, int]]:
        """Yield start (ns), end (ns) and word of each piece of other work; nothing during a capture."""
        found = self._read(is_timed=False)
        if found is not None:
            rows, at_ns, took_s = found
            yield from zip(at_ns.tolist(), (at_ns + (took_s * 1e9).astype(np.int64)).tolist(), rows[:, 4].tolist(), strict=True)

    def _read(self, *, is_timed: bool) -> tuple[Numbers, Numbers, Seconds] | None:
        """Wait for the last piece, and return rows, start times and durations; None without pieces, or during a capture."""
        rows = np.array(self._rows, np.int64).reshape(-1, _COLUMNS_COUNT)
        rows = rows[(rows[:, 4] == TIMED) == is_timed]
        if not len(rows) or (self._stream is None and self._cuda.is_current_stream_capturing()):
            return None  # waiting would invalidate the capture
        events = self._events
        events.synchronize(int(rows[-1, 1]))
        took_s = self._elapsed_s(rows[:, 0], rows[:, 1])
        after_s = self._elapsed_s(np.full(len(rows), _ANCHOR), rows[:, 0])
        return rows, self._anchor_ns + (after_s * 1e9).astype(np.int64), took_s

    def _elapsed_s(self, firsts: Numbers, lasts: Numbers) -> Seconds:
        pieces = []
        for begin in range(0, len(firsts), _PIECE_COUNT):
            self._rest()
            pieces.append(self._events.elapsed_s(firsts[begin : begin + _PIECE_COUNT], lasts[begin : begin + _PIECE_COUNT]))
        return np.concatenate(pieces)

    def _clocks_mhz(self, rows: Numbers) -> Seconds | None:
        if self._stamps is None or not self._stamps.used:
            return None
        stamps, stream = self._stamps, self._stream
        self._rest()
        fetched = stamps.fetch() if stream is None else stamps.fetch_beside(stream)
        some = stamps.stamped(fetched[:: -(-len(fetched) // _SPREADS_COUNT)])
        every = np.arange(len(some.at_ns))
        # Other work on the SMs delays a stamp's threads, or shifts them to free SMs.
        self._seen_ratio = float((some.at_ns > 0).mean())
        self._spread_s = float(np.median(some.last_ns(every) - some.first_ns(every)) / 1e9)
        begins, ends = rows[:, 2], rows[:, 3]
        known = (begins >= 0) & (ends >= 0)
        clocks_mhz = np.full(len(begins), np.nan)
        clocks_mhz[known] = stamps.stamped(thinned(fetched)).clocks_mhz(begins[known], ends[known])
        return clocks_mhz
