"""A thread that reads and sends the times of closed windows, so that the GPU does not idle meanwhile.

The thread starts before the first window's block: ``background-thread`` would find a thread that starts in a later window.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_LONGEST_S = 10.0  # a daemon that answers nothing delays the next window at most this long
# By process, because a forked child has no threads of its parent.
_pools: dict[int, ThreadPoolExecutor] = {}
_latest: dict[int, Future[None]] = {}


def prepare() -> None:
    """Start the thread if it does not run yet.  Raises RuntimeError: when no thread can be started."""
    if os.getpid() not in _pools:
        _submit(lambda: None)


def wait_for_earlier() -> None:
    """Wait until the times of all closed windows are read and sent.

    Reading beside a benchmark would slow its launches: calls of 20 µs took 29 to 35 µs on an H200 (docs/decisions/0120).
    """
    latest = _latest.get(os.getpid())
    if latest is not None and not latest.done():
        from concurrent.futures import wait

        wait([latest], _LONGEST_S)  # the thread works in order, so the latest work is the last


def _submit(work: Callable[[], None]) -> Future[None]:
    from concurrent.futures import ThreadPoolExecutor

    # The pool's thread ends with the program, after all submitted work.
    pid = os.getpid()
    pool = _pools.get(pid) or _pools.setdefault(pid, ThreadPoolExecutor(1, "gpuwatch-hand-over"))
    try:
        _latest[pid] = pool.submit(work)
    except RuntimeError:
        _pools.pop(pid, None)  # this pool would run the work later, if it could start a thread then
        raise
    return _latest[pid]


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
            self._work, self._pid = _submit(work), os.getpid()
        except RuntimeError:
            return False
        return True

    def wait(self) -> None:
        """Wait until the work is done.  A forked child does not wait: the work runs in the parent."""
        if self._work is None or os.getpid() != self._pid:
            return
        self._work.exception()  # waits; the work has logged its failures
        buffers = sys.modules.get("gpuwatch.cuda.stamp_buffers")
        if buffers is not None:
            buffers.free_pending()  # not freed by the thread, because freeing waits for the GPU
