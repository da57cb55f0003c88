"""A thread that reads and sends the times of closed windows, so that the GPU does not idle meanwhile.

The thread starts before the first window's block: ``background-thread`` would find a thread that started in a later window.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_pools: dict[int, ThreadPoolExecutor] = {}  # by process: a forked child has no threads of its parent


def prepare() -> None:
    """Start the thread if it does not run yet.  Raises RuntimeError: when no thread can be started."""
    if os.getpid() not in _pools:
        _submit(lambda: None)


def _submit(work: Callable[[], None]) -> Future[None]:
    from concurrent.futures import ThreadPoolExecutor

    # The pool's thread ends with the program, after all submitted work.
    pool = _pools.get(os.getpid()) or _pools.setdefault(os.getpid(), ThreadPoolExecutor(1, "gpuwatch-hand-over"))
    try:
        return pool.submit(work)
    except RuntimeError:
        _pools.pop(os.getpid(), None)  # this pool would run the work later, if it could start a thread then
        raise


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
