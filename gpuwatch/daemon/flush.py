"""Store flushes for windows: one flush serves many windows, and a failed flush is repeated."""

import asyncio
from concurrent.futures import Future
from typing import Any, Protocol

from gpuwatch import clock
from gpuwatch.daemon.user_turns import running_pool

PATIENCE_S = 10.0  # a commit takes milliseconds; a client waits 30 s for a verdict, and judging still follows
AGAIN_S = 0.5  # the store's own retry interval


class Flushable(Protocol):
    """The part of the store that flushing needs."""

    def flush(self, timeout_s: float) -> bool: ...

    def statistics(self) -> dict[str, Any]: ...


class Flushing:
    """A thread that flushes a store, so that a hanging disk blocks neither the event loop nor other threads."""

    def __init__(self, store: Flushable, *, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._patience_s = patience_s
        self._thread = running_pool(1, "gpuwatch-flush")
        self._last: Future[bool] | None = None
        self._leaving = False

    async def refusal(self) -> str | None:
        """Wait until everything received so far is committed.  Return None, or the reason for giving up."""
        deadline_ns = clock.now_ns() + int(self._patience_s * 1e9)
        while (left_s := (deadline_ns - clock.now_ns()) / 1e9) > 0:
            try:
                # Shielded: other windows wait for the same flush.
                done = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._queue_flush())), left_s)
            except TimeoutError:
                break
            if done:
                return None
            if self._leaving or self._store.statistics()["disk_full"]:  # the store drops rows for a full disk: no retry helps
                break
            # The refused rows may belong to another window, or another process may hold a lock: a retry can succeed.
            await asyncio.sleep(AGAIN_S)
        return self._store.statistics()["refused"] or "the commit timed out"

    def leave(self) -> None:
        """Stop retrying: the daemon is exiting."""
        self._leaving = True

    def _queue_flush(self) -> Future[bool]:
        """Return the queued flush, or queue a new flush.  A queued flush commits all received rows, so windows share one."""
        if self._last is None or self._last.running() or self._last.done():
            self._last = self._thread.submit(self._store.flush, self._patience_s)
        return self._last
