"""The true clock: one thread an SM writes %clock64 and %globaltimer."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values
from gpuwatch import clock
from gpuwatch.cuda.driver import checked, context, here, kernel, raw_stream, sms_count

_ROW_BYTES = 16  # an SM's: its two registers
MOST_BYTES = 64 << 20  # of device memory for one window's stamps
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
        """The mean SM clock between pairs of stamps: the median over the SMs that both saw, NaN where there is none.

        Idle time counts: between two stamps around a pause it is not the clock a kernel ran at.
        """
        seen = (self.at_ns[first] > 0) & (self.at_ns[second] > self.at_ns[first])
        passed_ns = np.where(seen, self.at_ns[second] - self.at_ns[first], 1)
        mhz = np.where(seen, (self.cycles[second] - self.cycles[first]) * 1e3 / passed_ns, np.nan)
        whole, known = seen.all(axis=1), seen.any(axis=1)
        out = np.full(len(mhz), np.nan)
        out[whole] = np.median(mhz[whole], axis=1)  # a tenth of what the other costs, and the rule
        if (partly := known & ~whole).any():
            out[partly] = np.nanmedian(mhz[partly], axis=1)
        return out

    def mean_mhz(self, first: int, second: int) -> float | None:
        """The same between two stamps; None where no SM saw both."""
        value = float(self.clocks_mhz(np.array([first]), np.array([second]))[0])
        return None if np.isnan(value) else value

    def spread_ratio(self, first: int, second: int) -> float | None:
        """How far the SMs' clocks lie apart, as a share of their median: one clock drives them all, so about nothing."""
        seen = (self.at_ns[first] > 0) & (self.at_ns[second] > self.at_ns[first])
        if not seen.any():
            return None
        mhz = (self.cycles[second] - self.cycles[first])[seen] * 1e3 / (self.at_ns[second] - self.at_ns[first])[seen]
        return float((mhz.max() - mhz.min()) / np.median(mhz))

    def first_ns(self, stamps: Numbers) -> Times:
        """When the first SM wrote each stamp: the work before it was done by then."""
        seen = self.at_ns[stamps]
        return np.asarray(np.where(seen > 0, seen, np.iinfo(np.int64).max).min(axis=1))

    def last_ns(self, stamps: Numbers) -> Times:
        """When the last SM wrote each stamp: the work after it had not begun before."""
        return np.asarray(self.at_ns[stamps].max(axis=1))

    def began_ns(self, stamp: int) -> int:
        return int(self.last_ns(np.array([stamp]))[0])


class Stamps:
    """Room for stamps on the current context's GPU, and the kernel that writes them.

    It makes no context, allocates when it is made and never later, and launches on torch's current stream.
    """

    def __init__(self, driver: Any, kernel: Any, sms_count: int, count: int, index: int) -> None:  # cuda has no types
        self._driver = driver
        self._kernel = kernel
        self._sms_count = sms_count
        self._index = index
        self.count = count
        self.used = 0
        self._base = int(checked(driver.cuMemAlloc(self._size_bytes)))
        self._row = ctypes.c_uint64(self._base)
        self._sms = ctypes.c_uint32(sms_count)
        self._arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self._row), ctypes.addressof(self._sms))
        self._raw_stream = raw_stream()
        checked(driver.cuMemsetD8(self._base, 0, self._size_bytes))
        self._offsets: list[tuple[int, int]] = []  # (on the GPU's timer, host minus GPU)

    @staticmethod
    def here(count: int) -> Stamps | None:
        """Room for so many stamps; None without a context, without cuda-bindings, on a foreign GPU, or during a capture.

        At most ``MOST_BYTES`` of device memory: ``count`` of the result may be smaller than asked for.
        """
        driver = here()
        if driver is None:
            return None
        spare = _spare.get((context(driver), count))
        if spare:
            stamps = spare.pop()
            stamps.clear()
            return stamps
        sms = sms_count(driver)
        kept = min(count, MOST_BYTES // (sms * _ROW_BYTES))
        stamps = Stamps(driver, kernel(driver, "gpuwatch_stamp"), sms, kept, sys.modules["torch"].cuda.current_device())
        stamps.calibrate()
        return stamps

    @property
    def _size_bytes(self) -> int:
        # One more row at the end, for calibration.
        return (self.count + 1) * self._sms_count * _ROW_BYTES

    def put(self, *, during_capture: bool = False) -> int:
        """Stamp on torch's current stream; the stamp's number, or −1 if there is no room, or a graph is being captured."""
        if self.used >= self.count or (not during_capture and sys.modules["torch"].cuda.is_current_stream_capturing()):
            return -1
        number = self.used
        self.used += 1
        self._launch(number)
        return number

    def _launch(self, number: int) -> None:
        self._row.value = self._base + number * self._sms_count * _ROW_BYTES
        # A block of one thread an SM: the scheduler gives each SM its first block before any its second.
        checked(
            self._driver.cuLaunchKernel(
                self._kernel, self._sms_count, 1, 1, 1, 1, 1, 0, self._raw_stream(self._index),
                ctypes.addressof(self._arguments), 0,
            )
        )  # fmt: skip

    def calibrate(self) -> None:
        """Learn how the GPU's timer lies to the host's clock.  It waits for the current stream."""
        synchronize = self._driver.cuStreamSynchronize
        best: tuple[int, int, int] | None = None
        for _ in range(_CALIBRATIONS_COUNT):
            stream = self._raw_stream(self._index)
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
        """Forget the stamps put so far; their room is used again.  Not while work that stamps is under way."""
        if self.used:
            checked(self._driver.cuMemsetD8(self._base, 0, self.used * self._sms_count * _ROW_BYTES))
        self.used = 0
        self._offsets.clear()
        self.calibrate()

    def read(self) -> Stamped:
        """All stamps put so far.  To be called when the work that stamps is done: it waits for the current stream only."""
        self.calibrate()
        rows = self._copied(0, self.used)
        timer_ns = rows[:, :, 0]
        return Stamped(np.where(timer_ns > 0, timer_ns + self._host_minus_gpu_ns(timer_ns), 0), rows[:, :, 1])

    def _host_minus_gpu_ns(self, timer_ns: Numbers) -> Numbers:
        """The two clocks drift apart by some millionths, so the distance goes in a straight line between calibrations."""
        if not self._offsets:
            return np.zeros_like(timer_ns)
        times, offsets = np.array(self._offsets, np.int64).T
        # Relative to the first: nanoseconds since 1970 exceed what a float holds exactly.
        moved = np.interp((timer_ns - times[0]).astype(np.float64), (times - times[0]).astype(np.float64), offsets - offsets[0])
        return np.asarray(offsets[0] + moved.astype(np.int64))

    def _copied(self, first: int, count: int) -> Numbers:
        out = np.empty((count, self._sms_count, 2), np.int64)
        if count:
            source = self._base + first * self._sms_count * _ROW_BYTES
            checked(self._driver.cuMemcpyDtoH(out.ctypes.data, source, out.nbytes))
        return out

    def close(self) -> None:
        """Give the memory back; a little is kept for the next, because to have it takes 0.2 ms."""
        if self._base and self.count <= _SPARE_COUNT:
            self.used = self.count
            _spare.setdefault((context(self._driver), self.count), []).append(self)
        elif self._base:
            self._driver.cuMemFree(self._base)
            self._base = 0


_SPARE_COUNT = 16  # stamps: the two at a window's edges, and a canary's
_spare: dict[tuple[int, int], list[Stamps]] = {}  # by context and size


__all__ = ["MOST_BYTES", "Stamped", "Stamps"]
