"""A wake-up for one waiting thread: what threading.Event does, for a third of the processor time.

An Event makes a lock, a list entry and two wake-ups of every wait, which is 40 us a pass of the sampler on an H200's machine;
here a wait is one lock, acquired with a timeout.
"""

import contextlib
import threading

from gpuwatch.clock import now_ns


class Wakeup:
    """Any thread may set it; one thread, always the same, waits and clears.

    The flag is the truth and the lock only a bell: rung after the flag is raised, so that whoever waits finds it raised.  A
    bell that rings for a flag already cleared wakes nobody for long.
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
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def clear(self) -> None:
        self._flag = False
        self._bell.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, at most so many seconds; whether it is."""
        if self._flag or timeout is None:
            while not self._flag:
                self._bell.acquire()
            return True
        if not self._bell.acquire(timeout=max(0.0, timeout)) or self._flag:
            return self._flag
        return self._wait_on(now_ns() + round(timeout * 1e9))

    def _wait_on(self, until_ns: int) -> bool:
        """After a bell without a flag: a set and a clear that crossed each other."""
        while not self._flag and (left_ns := until_ns - now_ns()) > 0:
            self._bell.acquire(timeout=left_ns / 1e9)
        return self._flag
