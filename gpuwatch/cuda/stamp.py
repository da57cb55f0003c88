"""The true clock: one thread an SM writes %clock64 and %globaltimer."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from dataclasses import dataclass
from operator import length_hint
from typing import Any

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values
from gpuwatch import clock
from gpuwatch.cuda import stamp_buffers as rooms
from gpuwatch.cuda.driver import checked, here, raw_stream
from gpuwatch.cuda.stamp_buffers import MOST_BYTES, Room

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
    """Stamps on the current context's GPU, in room that is there from the beginning.

    It makes no context, allocates when it is made and never later, and launches on torch's current stream.  Threads may
    stamp at once.
    """

    def __init__(self, room: Room) -> None:
        """Raises RuntimeError where the room is of a context that is gone."""
        self._room: Room | None = room
        self.count = room.count
        self._sms = ctypes.c_uint32(room.sms_count)
        # Every stamp has its own arguments, so that one thread's launch reads no other's.
        self._rows = room.base + np.arange(room.count + 1, dtype=np.uint64) * np.uint64(room.row_bytes)
        self._arguments = np.empty((room.count + 1, 2), np.uint64)
        self._arguments[:, 0] = self._rows.ctypes.data + np.arange(room.count + 1, dtype=np.uint64) * np.uint64(8)
        self._arguments[:, 1] = ctypes.addressof(self._sms)
        self._arguments_at = int(self._arguments.ctypes.data)
        self._raw_stream = raw_stream()
        self._is_capturing = sys.modules["torch"].cuda.is_current_stream_capturing
        self._numbers = iter(range(room.count))
        self._offsets: list[tuple[int, int]] = []  # (on the GPU's timer, host minus GPU)
        self._zero(room.size_bytes)
        self.calibrate()

    @staticmethod
    def here(count: int, driver: Any = None) -> Stamps | None:  # cuda has no types
        """Room for so many stamps; None without a context, without cuda-bindings, on a foreign GPU, or during a capture.

        At most ``MOST_BYTES`` of device memory: ``count`` of the result may be smaller than asked for.  ``driver`` is
        cuda-bindings' by itself.  Raises RuntimeError for what it refuses.
        """
        driver = here(driver)
        if driver is None:
            return None
        for room in rooms.spare(driver, count):
            # Room that cannot be used is of a context that was reset, and is forgotten: its address may be somebody else's.
            with contextlib.suppress(RuntimeError):
                return Stamps(room)
        room = rooms.new(driver, count)
        try:
            return Stamps(room)
        except RuntimeError:
            driver.cuMemFree(room.base)
            raise

    @property
    def used(self) -> int:
        """How many stamps were put."""
        return self.count - length_hint(self._numbers)

    def put(self, *, during_capture: bool = False) -> int:
        """Stamp on torch's current stream; the stamp's number, or −1 if there is no room, or a graph is being captured."""
        if not during_capture and self._is_capturing():
            return -1
        number = next(self._numbers, -1)
        if number >= 0:
            self._launch(number)
        return number

    def _open_room(self) -> Room:
        if self._room is None:
            raise RuntimeError("stamps: these are closed")
        return self._room

    def _launch(self, number: int) -> None:
        room = self._open_room()
        # A block of one thread an SM: the scheduler gives each SM its first block before any its second.
        checked(
            room.driver.cuLaunchKernel(
                room.kernel, room.sms_count, 1, 1, 1, 1, 1, 0, self._raw_stream(room.index),
                self._arguments_at + 16 * number, 0,
            )
        )  # fmt: skip

    def calibrate(self) -> None:
        """Learn how the GPU's timer lies to the host's clock.  It waits for the current stream."""
        room = self._open_room()
        synchronize = room.driver.cuStreamSynchronize
        best: tuple[int, int, int] | None = None
        for _ in range(_CALIBRATIONS_COUNT):
            stream = self._raw_stream(room.index)
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
            self._zero(self.used * self._open_room().row_bytes)
        self._numbers = iter(range(self.count))
        self._offsets.clear()
        self.calibrate()

    def _zero(self, size_bytes: int) -> None:
        # On the stream that stamps: the default one neither waits for others nor do they wait for it.
        room = self._open_room()
        checked(room.driver.cuMemsetD8Async(room.base, 0, size_bytes, self._raw_stream(room.index)))

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
        room = self._open_room()
        out = np.empty((count, room.sms_count, 2), np.int64)
        if count:
            checked(room.driver.cuMemcpyDtoH(out.ctypes.data, room.base + first * room.row_bytes, out.nbytes))
        return out

    def close(self) -> None:
        """Give the room back.  Nothing is put any more, and what was not read is lost."""
        room, self._room = self._room, None
        self._numbers = iter(range(0))
        if room is not None:
            rooms.give_back(room)


__all__ = ["MOST_BYTES", "Stamped", "Stamps"]
