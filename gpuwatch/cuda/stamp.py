"""The true clock: one thread an SM writes %clock64 and %globaltimer."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from operator import length_hint
from typing import Any

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values
from gpuwatch import clock
from gpuwatch.cuda import stamp_buffers
from gpuwatch.cuda.driver import checked, current_driver, raw_stream
from gpuwatch.cuda.stamp_buffers import StampBuffer
from gpuwatch.process import torch_state

_FEW_SMS_COUNT = 9
_CALIBRATIONS_COUNT = 3

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stamped:
    """Stamps read back: rows are stamps in the order they were put, columns SMs; zero where an SM was not seen.

    ``at_ns`` is CLOCK_MONOTONIC of this machine, good to some tens of microseconds against the host and to the timer's own
    resolution (32 ns on an H200) between stamps.
    """

    at_ns: Numbers
    cycles: Numbers

    def clocks_mhz(self, first: Numbers, second: Numbers) -> Values:
        """Return the mean SM clock between pairs of stamps: the median over the SMs that saw both, NaN where there is none.

        Idle time counts: between two stamps around a pause it is not the clock a kernel ran at.
        """
        seen = (self.at_ns[first] > 0) & (self.at_ns[second] > self.at_ns[first])
        passed_ns = np.where(seen, self.at_ns[second] - self.at_ns[first], 1)
        mhz = np.where(seen, (self.cycles[second] - self.cycles[first]) * 1e3 / passed_ns, np.nan)
        whole, known = seen.all(axis=1), seen.any(axis=1)
        out = np.full(len(mhz), np.nan)
        out[whole] = np.median(mhz[whole], axis=1)  # a tenth of the cost of the other, and the usual case
        if (partly := known & ~whole).any():
            out[partly] = np.nanmedian(mhz[partly], axis=1)
        return out

    def thinned(self) -> Stamped:
        """Return the stamps of a few SMs only: one clock drives all, and a median over 132 took 10 us an iteration."""
        step = -(-self.at_ns.shape[1] // _FEW_SMS_COUNT)
        return Stamped(self.at_ns[:, ::step], self.cycles[:, ::step])

    def mean_mhz(self, first: int, second: int) -> float | None:
        """Return the mean SM clock between two stamps; None where no SM saw both."""
        value = float(self.clocks_mhz(np.array([first]), np.array([second]))[0])
        return None if np.isnan(value) else value

    def first_ns(self, stamps: Numbers) -> Times:
        """Return when the first SM wrote each stamp: the work before it was done by then."""
        seen = self.at_ns[stamps]
        return np.asarray(np.where(seen > 0, seen, np.iinfo(np.int64).max).min(axis=1))

    def last_ns(self, stamps: Numbers) -> Times:
        """Return when the last SM wrote each stamp: the work after it had not begun before."""
        return np.asarray(self.at_ns[stamps].max(axis=1))

    def began_ns(self, stamp: int) -> int:
        return int(self.last_ns(np.array([stamp]))[0])


class Stamps:
    """Stamps on the current context's GPU, in a buffer allocated beforehand.

    It makes no context, allocates when it is made and never later, and launches on torch's current stream.  Threads may
    stamp at once.
    """

    def __init__(self, buffer: StampBuffer) -> None:
        """Raises RuntimeError: when the buffer belongs to a context that is gone."""
        self._buffer: StampBuffer | None = buffer
        self.count = buffer.count
        self._sms = ctypes.c_uint32(buffer.sms_count)
        # Each stamp has its own arguments, so that no launch reads those of another thread.
        self._rows = buffer.base + np.arange(buffer.count + 1, dtype=np.uint64) * np.uint64(buffer.row_bytes)
        self._arguments = np.empty((buffer.count + 1, 2), np.uint64)
        self._arguments[:, 0] = self._rows.ctypes.data + np.arange(buffer.count + 1, dtype=np.uint64) * np.uint64(8)
        self._arguments[:, 1] = ctypes.addressof(self._sms)
        self._arguments_at = int(self._arguments.ctypes.data)
        self._raw_stream = raw_stream()
        cuda = torch_state.cuda_with_context()
        self._is_capturing = cuda.is_current_stream_capturing if cuda is not None else bool
        self._numbers = iter(range(buffer.count))
        self._offsets: list[tuple[int, int]] = []  # (on the GPU's timer, host minus GPU)
        self._zero(buffer.size_bytes)
        self.calibrate()

    @staticmethod
    def allocate(count: int, driver: Any = None) -> Stamps | None:  # cuda has no types
        """Allocate ``count`` stamps; None without a context, without cuda-bindings, on a foreign GPU, or during a capture.

        It takes at most ``stamp_buffers.MOST_BYTES`` of device memory: ``count`` of the result may be smaller.  ``driver`` defaults to that
        of cuda-bindings.
        Raises RuntimeError: when the driver refuses.
        """
        driver = current_driver(driver)
        if driver is None:
            return None
        for buffer in stamp_buffers.reuse(driver, count):
            # A buffer that cannot be used is of a context that was reset, and is dropped: its address may have another owner.
            with contextlib.suppress(RuntimeError):
                return Stamps(buffer)
        buffer = stamp_buffers.allocate(driver, count)
        try:
            return Stamps(buffer)
        except RuntimeError:
            driver.cuMemFree(buffer.base)
            raise

    @property
    def used(self) -> int:
        """The number of stamps put so far."""
        return self.count - length_hint(self._numbers)

    def put(self, *, during_capture: bool = False) -> int:
        """Stamp on torch's current stream; return its number, or −1 if the buffer is full or a graph is being captured."""
        if not during_capture and self._is_capturing():
            return -1
        number = next(self._numbers, -1)
        if number >= 0:
            self._launch(number)
        return number

    def _open_buffer(self) -> StampBuffer:
        if self._buffer is None:
            raise RuntimeError("stamps: these are closed")
        return self._buffer

    def _launch(self, number: int) -> None:
        buffer = self._open_buffer()
        # A block of one thread an SM: the scheduler gives each SM its first block before any its second.
        stream, arguments = self._raw_stream(buffer.index), self._arguments_at + 16 * number
        checked(buffer.driver.cuLaunchKernel(buffer.kernel, buffer.sms_count, 1, 1, 1, 1, 1, 0, stream, arguments, 0))

    def calibrate(self) -> None:
        """Measure the offset of the GPU's timer from the host's clock.  It waits for the current stream."""
        buffer = self._open_buffer()
        synchronize = buffer.driver.cuStreamSynchronize
        best: tuple[int, int, int] | None = None
        for _ in range(_CALIBRATIONS_COUNT):
            stream = self._raw_stream(buffer.index)
            before_ns = clock.now_ns()
            self._launch(self.count)
            checked(synchronize(stream))
            took_ns = clock.now_ns() - before_ns
            timer_ns = int(self._copied(self.count, 1)[:, :, 0].max())
            if timer_ns and (best is None or took_ns < best[0]):
                best = (took_ns, timer_ns, before_ns + took_ns // 2 - timer_ns)
        if best is not None:
            self._offsets.append(best[1:])

    def clear(self) -> None:
        """Discard the stamps put so far and reuse their rows.  Not while work that stamps is running."""
        if self.used:
            self._zero(self.used * self._open_buffer().row_bytes)
        self._numbers = iter(range(self.count))
        self._offsets.clear()
        self.calibrate()

    def _zero(self, size_bytes: int) -> None:
        # On the stream that stamps: the default one neither waits for others nor do they wait for it.
        buffer = self._open_buffer()
        checked(buffer.driver.cuMemsetD8Async(buffer.base, 0, size_bytes, self._raw_stream(buffer.index)))

    def read(self) -> Stamped:
        """Read all stamps put so far, after the work that stamps: it waits for the current stream only."""
        return self.stamped(self.fetch())

    def fetch(self) -> Numbers:
        """Copy all stamps put so far to the host, as ``stamped`` reads them: after it the GPU is no longer needed."""
        self.calibrate()
        return self._copied(0, self.used)

    def stamped(self, rows: Numbers) -> Stamped:
        """Return the times and cycles in rows that were fetched, before the stamps are cleared."""
        timer_ns = rows[:, :, 0]
        return Stamped(np.where(timer_ns > 0, timer_ns + self._host_minus_gpu_ns(timer_ns), 0), rows[:, :, 1])

    def _host_minus_gpu_ns(self, timer_ns: Numbers) -> Numbers:
        """Interpolate the offset between calibrations: the two clocks drift apart by some millionths."""
        if not self._offsets:
            return np.zeros_like(timer_ns)
        times, offsets = np.array(self._offsets, np.int64).T
        # Relative to the first: nanoseconds since 1970 exceed what a float holds exactly.
        moved = np.interp((timer_ns - times[0]).astype(np.float64), (times - times[0]).astype(np.float64), offsets - offsets[0])
        return np.asarray(offsets[0] + moved.astype(np.int64))

    def _copied(self, first: int, count: int) -> Numbers:
        buffer = self._open_buffer()
        out = np.empty((count, buffer.sms_count, 2), np.int64)
        if count:
            checked(buffer.driver.cuMemcpyDtoH(out.ctypes.data, buffer.base + first * buffer.row_bytes, out.nbytes))
        return out

    def close(self) -> None:
        """Release the buffer.  Later stamps are not put, and unread ones are lost."""
        buffer, self._buffer = self._buffer, None
        self._numbers = iter(range(0))
        if buffer is not None:
            stamp_buffers.release(buffer)
