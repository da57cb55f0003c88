"""The true clock: one thread per SM writes %clock64 and %globaltimer."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from operator import length_hint
from typing import Any

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values
from gpuwatch import clock
from gpuwatch.cuda import stamp_buffers
from gpuwatch.cuda.driver import checked, current_driver, raw_stream, reading_thread
from gpuwatch.cuda.stamp_buffers import StampBuffer
from gpuwatch.process import torch_state

_FEW_SMS_COUNT = 9
_CALIBRATIONS_COUNT = 3

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stamped:
    """Stamps after reading: rows are stamps in order, and columns are SMs.

    ``at_ns`` is CLOCK_MONOTONIC of this machine, and zero if an SM wrote nothing.  The error of ``at_ns`` is some tens of
    microseconds against the host, and the timer's resolution between stamps.
    """

    at_ns: Numbers
    cycles: Numbers

    def clocks_mhz(self, first: Numbers, second: Numbers) -> Values:
        """Return the mean SM clock between pairs of stamps: the median over the SMs that wrote both, NaN if none did.

        Idle time counts: around a pause, the mean is not the clock of a kernel.
        """
        seen = (self.at_ns[first] > 0) & (self.at_ns[second] > self.at_ns[first])
        passed_ns = np.where(seen, self.at_ns[second] - self.at_ns[first], 1)
        mhz = np.where(seen, (self.cycles[second] - self.cycles[first]) * 1e3 / passed_ns, np.nan)
        whole, known = seen.all(axis=1), seen.any(axis=1)
        out = np.full(len(mhz), np.nan)
        out[whole] = np.median(mhz[whole], axis=1)  # the usual case, and much faster than nanmedian
        if (partly := known & ~whole).any():
            out[partly] = np.nanmedian(mhz[partly], axis=1)
        return out

    def mean_mhz(self, first: int, second: int) -> float | None:
        """Return the mean SM clock between two stamps; None if no SM wrote both."""
        value = float(self.clocks_mhz(np.array([first]), np.array([second]))[0])
        return None if np.isnan(value) else value

    def first_ns(self, stamps: Numbers) -> Times:
        """Return the time of each stamp's first write by an SM: the work before the stamp was done by then."""
        seen = self.at_ns[stamps]
        return np.asarray(np.where(seen > 0, seen, np.iinfo(np.int64).max).min(axis=1))

    def last_ns(self, stamps: Numbers) -> Times:
        """Return the time of each stamp's last write by an SM: the work after the stamp began later."""
        return np.asarray(self.at_ns[stamps].max(axis=1))

    def began_ns(self, stamp: int) -> int:
        return int(self.last_ns(np.array([stamp]))[0])


def thinned(rows: Numbers) -> Numbers:
    """Return fetched rows of a few SMs only: all share one clock, and a median over all SMs is slow."""
    return rows[:, :: -(-rows.shape[1] // _FEW_SMS_COUNT)]


class Stamps:
    """Stamps on the current context's GPU, in a buffer allocated beforehand.

    The object creates no context, allocates device memory only in ``allocate``, and launches on torch's current stream.
    Several threads may stamp at once.  Methods that call the driver, except ``close``, raise RuntimeError: when the
    driver refuses, and all but ``put`` also after ``close``.
    """

    def __init__(self, buffer: StampBuffer) -> None:
        """Prepare the stamps.

        Raises RuntimeError: when the driver refuses, such as for a buffer of a destroyed context.
        """
        self._buffer: StampBuffer | None = buffer
        self.count = buffer.count
        self._sms = ctypes.c_uint32(buffer.sms_count)
        # Each stamp has separate arguments, so that no launch reads those of another thread.
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
        """Allocate ``count`` stamps; None without a CUDA context, without cuda-bindings, or during a capture.

        ``count`` of the result may be larger in a kept buffer; it is smaller if ``stamp_buffers.MOST_BYTES`` limits the memory.
        ``driver`` defaults to that of cuda-bindings.
        Raises RuntimeError: when the driver refuses.
        """
        driver = current_driver(driver)
        if driver is None:
            return None
        stamp_buffers.free_pending()
        for buffer in stamp_buffers.reuse(driver, count):
            try:
                return Stamps(buffer)
            except RuntimeError:
                stamp_buffers.discard(buffer)
        buffer = stamp_buffers.allocate(driver, count)
        try:
            return Stamps(buffer)
        except RuntimeError:
            driver.cuMemFree(buffer.base)
            raise

    @property
    def used(self) -> int:
        """Return the number of stamps put so far."""
        return self.count - length_hint(self._numbers)

    def put(self, *, during_capture: bool = False) -> int:
        """Stamp on torch's current stream, and return the stamp's number.

        Return −1 if the buffer is full, after ``close``, or (by default) in a capture.
        """
        if not during_capture and self._is_capturing():
            return -1
        number = next(self._numbers, -1)
        if number >= 0:
            self._launch(number)
        return number

    def _open_buffer(self) -> StampBuffer:
        if self._buffer is None:
            raise RuntimeError("expected open stamps, found closed ones; allocate new stamps")
        return self._buffer

    def _launch(self, number: int) -> None:
        buffer = self._open_buffer()
        # Blocks of one thread, one per SM: the scheduler gives each SM a first block before any second one.
        stream, arguments = self._raw_stream(buffer.index), self._arguments_at + 16 * number
        checked(buffer.driver.cuLaunchKernel(buffer.kernel, buffer.sms_count, 1, 1, 1, 1, 1, 0, stream, arguments, 0))

    def calibrate(self) -> None:
        """Wait for the current stream, and measure the offset of the GPU's timer from the host's clock."""
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
        """Discard the stamps so far and reuse their rows.  The caller must wait for stamping work first."""
        if self.used:
            self._zero(self.used * self._open_buffer().row_bytes)
        self._numbers = iter(range(self.count))
        self._offsets.clear()
        self.calibrate()

    def _zero(self, size_bytes: int) -> None:
        # Zero on the stamping stream, because other streams do not wait for the default stream.
        buffer = self._open_buffer()
        checked(buffer.driver.cuMemsetD8Async(buffer.base, 0, size_bytes, self._raw_stream(buffer.index)))

    def read(self) -> Stamped:
        """Wait for the current stream, and read all stamps so far."""
        return self.stamped(self.fetch())

    def fetch(self) -> Numbers:
        """Copy all stamps so far to the host, so that ``stamped`` needs no GPU."""
        self.calibrate()
        return self._copied(0, self.used)

    def fetch_beside(self, stream: int) -> Numbers:
        """Copy all stamps so far on a stream of ``reading_thread``; call after ``calibrate`` and the end of the work."""
        buffer = self._open_buffer()
        out = np.empty((self.used, buffer.sms_count, 2), np.int64)
        checked(buffer.driver.cuMemcpyDtoHAsync(out.ctypes.data, buffer.base, out.nbytes, stream))
        checked(buffer.driver.cuStreamSynchronize(stream))
        return out

    @contextlib.contextmanager
    def reading_thread(self) -> Iterator[int]:
        """Let the calling thread read from the context of these stamps; yield the stream for ``fetch_beside``."""
        buffer = self._open_buffer()
        with reading_thread(buffer.driver, buffer.context) as stream:
            yield stream

    def stamped(self, rows: Numbers) -> Stamped:
        """Return the times and cycles in fetched rows; call before ``clear``, which discards the calibrations."""
        timer_ns = rows[:, :, 0]
        return Stamped(np.where(timer_ns > 0, timer_ns + self._host_minus_gpu_ns(timer_ns), 0), rows[:, :, 1])

    def _host_minus_gpu_ns(self, timer_ns: Numbers) -> Numbers:
        """Interpolate the offset between calibrations: the two clocks drift by some millionths."""
        if not self._offsets:
            return np.zeros_like(timer_ns)
        times, offsets = np.array(self._offsets, np.int64).T
        # Subtract the first calibration, because nanoseconds since 1970 exceed a float's precision.
        moved = np.interp((timer_ns - times[0]).astype(np.float64), (times - times[0]).astype(np.float64), offsets - offsets[0])
        return np.asarray(offsets[0] + moved.astype(np.int64))

    def _copied(self, first: int, count: int) -> Numbers:
        buffer = self._open_buffer()
        out = np.empty((count, buffer.sms_count, 2), np.int64)
        if count:
            checked(buffer.driver.cuMemcpyDtoH(out.ctypes.data, buffer.base + first * buffer.row_bytes, out.nbytes))
        return out

    def close(self, *, is_beside: bool = False) -> None:
        """Release the buffer, also from a separate thread.  Later stamps are skipped, and unread stamps are lost."""
        buffer, self._buffer = self._buffer, None
        self._numbers = iter(range(0))
        if buffer is not None:
            stamp_buffers.release(buffer, is_beside=is_beside)
