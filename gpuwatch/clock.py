"""Clocks.  Every other module reads the time here, except the store's migrations and the timers of the event loop."""

import time
from typing import Protocol


class Signal(Protocol):
    """The interface for interrupting a wait: a threading.Event, or a cheaper object."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


def now_ns() -> int:
    """Return CLOCK_MONOTONIC in nanoseconds, the axis of all evidence."""
    return time.monotonic_ns()


def wall_s() -> float:
    """Return wall time in seconds since the epoch, for records and display."""
    return time.time()


def wall_offset_ns() -> int:
    """Return wall time minus monotonic time, from the fastest of five readings."""
    best_ns, offset_ns = 1 << 62, 0
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_ns:
            best_ns, offset_ns = after - before, wall - (before + after) // 2
    return offset_ns


def until_tick_s(now_s: float, period_s: float) -> float:
    """Return the time to a multiple of the period, at least half a period.  Timers with shared ticks wake the process once."""
    left_s = period_s - now_s % period_s
    return left_s if left_s >= period_s / 2 else left_s + period_s


def boot_offset_ns() -> int:
    """Return time since boot, suspension included, minus monotonic time (Linux; elsewhere 0)."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()


def thread_cpu_ns() -> int:
    """Return the CPU time of the calling thread."""
    return time.thread_time_ns()


class MonotonicClock:
    """Real time, as CLOCK_MONOTONIC."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wait_until(self, due_ns: int, stop: Signal) -> bool:
        """Sleep until a time; return True early if ``stop`` is set."""
        left_ns = due_ns - time.monotonic_ns()
        return stop.wait(left_ns / 1e9) if left_ns > 0 else stop.is_set()


class VirtualClock:
    """Time that passes only during waits, so that simulations and tests run fast.

    Only one thread may use a VirtualClock: waits of a second thread would change the first thread's time.
    """

    def __init__(self, start_ns: int = 1_000_000_000_000) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def wait_until(self, due_ns: int, stop: Signal) -> bool:
        self._now_ns = max(self._now_ns, due_ns)
        return stop.is_set()


def process_cpu_s() -> float:
    """Return the CPU time of this process, all threads."""
    return time.process_time()
