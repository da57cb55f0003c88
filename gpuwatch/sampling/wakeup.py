"""A wake-up for one waiting thread: a replacement for threading.Event that needs less CPU time.

An Event creates a lock, a list entry and two wake-ups for every wait.  A Wakeup only acquires one lock with a timeout.
"""

import contextlib
import threading

from gpuwatch.clock import now_ns


class Wakeup:
    """A flag that any thread may set; only one thread, always the same, waits for it and clears it.

    The flag holds the state, and the lock only signals.  The lock is released after the flag is set, so a woken thread
    finds a set flag.  A release for a flag already cleared causes only a brief wake-up.
    """

    __slots__ = ("_bell", "_flag")

    def __init__(self) -> None:
        self._flag = False
        self._bell = threading.Lock()
        self._bell.acquire()

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        with contextlib.suppress(RuntimeError):  # already released
            self._bell.release()

    def clear(self) -> None:
        self._flag = False
        self._bell.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, at most ``timeout`` seconds; return the flag."""
        if self._flag or timeout is None:
            while not self._flag:
                self._bell.acquire()
            return True
        if not self._bell.acquire(timeout=max(0.0, timeout)) or self._flag:
            return self._flag
        return self._wait_on(now_ns() + round(timeout * 1e9))

    def _wait_on(self, until_ns: int) -> bool:
        """Wait after a release without a flag: a set and a clear that crossed each other."""
        while not self._flag and (left_ns := until_ns - now_ns()) > 0:
            self._bell.acquire(timeout=left_ns / 1e9)
        return self._flag
