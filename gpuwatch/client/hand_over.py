"""A thread that reads and sends the times of closed windows, so that the GPU does not idle meanwhile.

With a CUDA context, a window starts the thread before its block: ``background-thread`` would find a thread that starts later.
The thread rests while a window is open, because reading slows launches (docs/decisions/0120).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gpuwatch import clock

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_LONGEST_NS = 12_000_000_000  # the daemon waits 20 s for the times of a window
MOST_COUNT = 8  # windows whose times may wait: each holds up to 64 MiB of the GPU's memory
_LOOK_S = 0.25  # between two checks for the program's end


class _Reader:
    """The reading thread of one process, and the open windows that the thread must not disturb."""

    def __init__(self) -> None:
        self.open: weakref.WeakSet[object] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._awaited: set[Future[None]] = set()
        self._pending: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None
        self._due_ns = 0

    @property
    def is_started(self) -> bool:
        return self._pool is not None

    def submit(self, work: Callable[[], None], after_ns: int) -> Future[None]:
        """Run the work in the thread.  Raises RuntimeError: when no thread can be started."""
        from concurrent.futures import ThreadPoolExecutor

        # The pool's thread ends with the program, after all submitted work.
        self._pool = self._pool or ThreadPoolExecutor(1, "gpuwatch-hand-over")
        try:
            self._pending.append(self._pool.submit(partial(self._run, work, after_ns)))
        except RuntimeError:
            self._pool = None  # this pool would run the work later, if it could start a thread then
            raise
        return self._pending[-1]

    def _run(self, work: Callable[[], None], after_ns: int) -> None:
        self._due_ns = after_ns + _LONGEST_NS
        self.rest()
        work()

    def rest(self) -> None:
        """Wait until no window is open, a caller waits for times, the times are due, or the program ends."""
        with self._changed:
            while (
                self.open
                and all(each.done() for each in self._awaited)
                and clock.now_ns() < self._due_ns
                # The program's end waits for the pool before the main thread counts as ended.
                and not getattr(sys.modules["concurrent.futures.thread"], "_shutdown", False)
            ):
                self._changed.wait(_LOOK_S)

    def wait(self, work: Future[None]) -> None:
        """Wait until the work is done, also while a window is open.  The work has logged its failures."""
        with self._changed:
            self._awaited.add(work)  # after Ctrl-C at this point the entry stays, without effect once the work is done
            self._changed.notify_all()
        try:
            work.exception()
        finally:
            with self._changed:
                self._awaited = {each for each in self._awaited if each is not work and not each.done()}

    def begin(self, window: object) -> None:
        self.open.add(window)

    def end(self, window: object) -> None:
        with self._changed:
            self.open.discard(window)
            self._changed.notify_all()

    def make_room(self) -> None:
        """Wait for the oldest work until fewer than ``MOST_COUNT`` pieces are pending."""
        self._pending = pending = [each for each in self._pending if not each.done()]
        for work in pending[: 1 - MOST_COUNT]:
            self.wait(work)


_readers: dict[int, _Reader] = {}  # by process, because a forked child has no threads of its parent


def reader() -> _Reader:
    """Return this process's reader."""
    return _readers.get(os.getpid()) or _readers.setdefault(os.getpid(), _Reader())


def prepare() -> None:
    """Start the thread if it does not run yet.  Raises RuntimeError: when no thread can be started."""
    if not reader().is_started:
        reader().submit(lambda: None, 0)


class HandOver:
    """One piece of work in the thread; the program ends only after the work."""

    def __init__(self) -> None:
        self._work: Future[None] | None = None
        self._pid = 0

    @property
    def is_running(self) -> bool:
        return self._work is not None and os.getpid() == self._pid and not self._work.done()

    def start(self, work: Callable[[], None]) -> bool:
        """Start the work; return False if no thread can be started."""
        try:
            self._work, self._pid = reader().submit(work, clock.now_ns()), os.getpid()
        except RuntimeError:
            return False
        return True

    def wait(self) -> None:
        """Wait until the work is done.  A forked child does not wait: the work runs in the parent."""
        if self._work is None or os.getpid() != self._pid:
            return
        reader().wait(self._work)
        buffers = sys.modules.get("gpuwatch.cuda.stamp_buffers")
        if buffers is not None:
            buffers.free_pending()  # not freed by the thread, because freeing waits for the GPU
