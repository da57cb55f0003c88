"""Whether all that was taken so far is stored: asked for many windows at once, and again where a disk is slow or held."""

import asyncio
from concurrent.futures import Future
from typing import Any, Protocol

from gpuwatch import clock
from gpuwatch.daemon.user_turns import running_pool

PATIENCE_S = 10.0  # a commit takes milliseconds; who waits for a verdict does so for 30 s, and the judge has yet to be asked
AGAIN_S = 0.5  # as often as the store tries by itself


class Flushable(Protocol):
    """What of a store is asked here."""

    def flush(self, timeout_s: float) -> bool: ...

    def statistics(self) -> dict[str, Any]: ...


class Flushing:
    """Waits for a store, in a thread of its own: a disk that hangs holds up neither the event loop nor other threads."""

    def __init__(self, store: Flushable, *, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._patience_s = patience_s
        self._thread = running_pool(1, "gpuwatch-flush")
        self._last: Future[bool] | None = None
        self._leaving = False

    async def refusal(self) -> str | None:
        """None once everything taken before this call is committed, else why it is not in spite of all patience."""
        deadline_ns = clock.now_ns() + int(self._patience_s * 1e9)
        while (left_s := (deadline_ns - clock.now_ns()) / 1e9) > 0:
            try:
                # Shielded: others wait for the same.
                done = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._begun())), left_s)
            except TimeoutError:
                break
            if done:
                return None
            if self._leaving or self._store.statistics()["disk_full"]:  # what a full disk refuses is lost
                break
            # What was refused may have been another window's, or somebody held a file: both pass.
            await asyncio.sleep(AGAIN_S)
        return self._store.statistics()["refused"] or "the disk did not take them in time"

    def leave(self) -> None:
        """The daemon ends: what is refused from here on is not tried again."""
        self._leaving = True

    def _begun(self) -> Future[bool]:
        """One that has not begun will store all that was taken until now: windows that end together share it."""
        if self._last is None or self._last.running() or self._last.done():
            self._last = self._thread.submit(self._store.flush, self._patience_s)
        return self._last
