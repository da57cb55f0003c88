"""The hand-over of a window's times beside the program, where reading them takes long: the GPU would idle meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


class HandOver:
    """One piece of work in a thread beside the program, which ends no sooner than it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> bool:
        """Start the work; False where the process can start no thread, or ends."""
        # Not daemonic: a program that ends now still hands its times over.
        thread = threading.Thread(target=work, name="gpuwatch-hand-over", daemon=False)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def wait(self) -> None:
        """Wait until the work is done.  A forked child does not wait: the work is its parent's."""
        if self._thread is None:
            return
        self._thread.join()
        buffers = sys.modules.get("gpuwatch.cuda.stamp_buffers")
        if buffers is not None:
            buffers.free_pending()  # left by the thread, because freeing waits for the GPU
