"""The watch for suspensions of the machine, during which the clock of all evidence stands still."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gpuwatch.host import suspend

_log = logging.getLogger("gpuwatch.daemon.daemon")


class SuspendWatch:
    """Looks again and again in the event loop, more often while a window is open."""

    def __init__(self, note: Callable[[suspend.Sleep], None], *, is_busy: Callable[[], bool]) -> None:
        self._note = note
        self._is_busy = is_busy
        self._sleeps = suspend.Sleeps()
        self._next_look: asyncio.TimerHandle | None = None

    def look(self, again_s: float | None = None) -> None:
        """Look now, and again after ``again_s`` or as often as what is open needs."""
        if self._next_look is not None:
            self._next_look.cancel()
        again_s = again_s or (suspend.LOOK_S if self._is_busy() else suspend.IDLE_LOOK_S)
        self._next_look = asyncio.get_running_loop().call_later(again_s, self.look)
        if (slept := self._sleeps.look()) is not None:
            _log.warning("the machine was suspended for %.1f s", slept.slept_s)
            self._note(slept)

    def look_before_edge(self) -> None:
        """Look before a window opens or is judged."""
        self.look(suspend.LOOK_S)
