"""The edges of iterations on the GPU: an event for the time, a stamp for the clock."""

from typing import Any

import numpy as np

from annotate.evidence import Timings
from gpuwatch import clock
from gpuwatch.cuda.stamp import Stamps
from gpuwatch.wire.messages import TIMES_COUNT, FactValue
from gpuwatch.wire.timings import sort_by_begin

Begun = tuple[Any, int]  # the event at the beginning, which has no type, and the number of the stamp before it


class CudaMarks:
    """Events and stamps on torch's current stream.

    A stamp lies outside its events, so that it costs the iteration no time: about 2 us of the GPU and 5 us of the host each
    on an H200, where an event takes about 1.5 us of the host.  Without room for stamps, times go on without a clock.
    """

    timer = "events"

    def __init__(self, cuda: Any, count: int, driver: Any = None) -> None:  # neither torch.cuda nor cuda-bindings has types
        self._cuda = cuda
        self._cuda.current_stream().synchronize()
        self._anchor = self._record()
        self._anchor.synchronize()
        self._anchor_ns = clock.now_ns()
        self._pairs: list[tuple[Any, Any, int, int]] = []
        self._spread_s: float | None = None
        self._seen_ratio: float | None = None
        self._is_open = True
        self._stamps = Stamps.allocate(2 * count, driver)

    def told(self) -> dict[str, FactValue]:
        if self._spread_s is None:
            return {"timer": self.timer}
        return {"timer": self.timer, "stamp_spread_s": self._spread_s, "stamp_seen_ratio": self._seen_ratio}

    def _record(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _stamp(self) -> int:
        return self._stamps.put() if self._stamps is not None else -1

    def begin(self) -> Begun | None:
        if not self._is_open or self._cuda.is_current_stream_capturing():
            return None
        stamp = self._stamp()
        return self._record(), stamp

    def end(self, begun: Begun) -> int | None:
        """Mark the end; return the number of its stamp, None for an iteration that is left out."""
        if len(self._pairs) >= TIMES_COUNT or not self._is_open or self._cuda.is_current_stream_capturing():
            return None
        event = self._record()
        stamp = self._stamp()
        self._pairs.append((begun[0], event, begun[1], stamp))
        return stamp

    def next(self, begun: Begun) -> Begun | None:
        stamp = self.end(begun)
        if stamp is None:
            return self.begin()
        return self._record(), stamp  # the stamp that ends one iteration begins the next

    def close(self) -> None:
        """Release the stamps; later iterations are not marked."""
        stamps, self._stamps, self._is_open = self._stamps, None, False
        if stamps is not None:
            stamps.close()

    def timings(self) -> Timings | None:
        if not self._pairs or self._cuda.is_current_stream_capturing():  # waiting would destroy the graph
            return None
        self._pairs[-1][1].synchronize()
        took_s = np.array([first.elapsed_time(last) for first, last, _, _ in self._pairs]) / 1e3
        after_s = np.array([self._anchor.elapsed_time(first) for first, _, _, _ in self._pairs]) / 1e3
        at_ns = self._anchor_ns + (after_s * 1e9).astype(np.int64)
        return sort_by_begin(Timings(at_ns, took_s, self._clocks_mhz()))

    def _clocks_mhz(self) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        if self._stamps is None or not self._stamps.used:
            return None
        stamped = self._stamps.read()
        every = np.arange(self._stamps.used)
        # Other work on the SMs delays a stamp's threads, and drives them onto SMs that are free.
        self._seen_ratio = float((stamped.at_ns > 0).mean())
        self._spread_s = float(np.median(stamped.last_ns(every) - stamped.first_ns(every)) / 1e9)
        begins, ends = np.array([pair[2:] for pair in self._pairs], np.int64).T
        known = (begins >= 0) & (ends >= 0)
        clocks_mhz = np.full(len(begins), np.nan)
        clocks_mhz[known] = stamped.clocks_mhz(begins[known], ends[known])
        return clocks_mhz
