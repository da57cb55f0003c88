"""A thread that reads and sends a window's times, so that the GPU does not idle meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


class HandOver:
    """One piece of work in a thread; the program ends only after the work."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> bool:
        """Start the work; return False if no thread can be started."""
        # Not a daemon thread: a program that ends now still sends the times.
        thread = threading.Thread(target=work, name="gpuwatch-hand-over", daemon=False)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def wait(self) -> None:
        """Wait until the work is done.  A forked child does not wait: the work runs in the parent."""
        if self._thread is None:
            return
        self._thread.join()
        buffers = sys.modules.get("gpuwatch.cuda.stamp_buffers")
        if buffers is not None:
            buffers.free_pending()  # not freed by the thread, because freeing waits for the GPU
