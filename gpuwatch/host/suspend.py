"""Suspensions of the machine.  CLOCK_MONOTONIC, the clock of all evidence, stops during a suspension."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from gpuwatch import clock

_log = logging.getLogger("gpuwatch.daemon.daemon")

LOOK_S = 0.2  # interval of checks until every window is judged; the check interval around a suspension counts as not watched
IDLE_LOOK_S = 5.0  # interval of checks without windows
SLEPT_NS = 100_000_000  # more than the time between the reads of two clocks; every suspension takes longer
REFRESH_NS = 100_000_000  # values of the last reading may be one refresh period of the driver old


@dataclass(frozen=True, slots=True)
class Sleep:
    """The interval of CLOCK_MONOTONIC around a suspension of the machine, and the suspension's duration."""

    begin_ns: int
    end_ns: int
    slept_s: float


class Sleeps:
    """Detector of suspensions since the last check."""

    def __init__(
        self, now_ns: Callable[[], int] = clock.now_ns, boot_offset_ns: Callable[[], int] = clock.boot_offset_ns
    ) -> None:
        self._now_ns = now_ns
        self._boot_offset_ns = boot_offset_ns
        self._looked_ns, self._offset_ns = now_ns(), boot_offset_ns()

    def look(self) -> Sleep | None:
        looked_ns, offset_ns = self._looked_ns, self._offset_ns
        self._looked_ns, self._offset_ns = self._now_ns(), self._boot_offset_ns()
        slept_ns = self._offset_ns - offset_ns
        if slept_ns < SLEPT_NS:
            return None
        return Sleep(looked_ns - REFRESH_NS, self._looked_ns, slept_ns / 1e9)


class SuspendWatch:
    """Repeated checks in the event loop, more often while a window is open or waits for its verdict."""

    def __init__(self, note: Callable[[Sleep], None], *, is_busy: Callable[[], bool]) -> None:
        self._note = note
        self._is_busy = is_busy
        self._sleeps = Sleeps()
        self._next_look: asyncio.TimerHandle | None = None

    def look(self, again_s: float | None = None) -> None:
        """Check now, and again at a tick of ``again_s``: by default LOOK_S with windows, IDLE_LOOK_S without."""
        if self._next_look is not None:
            self._next_look.cancel()
        again_s = again_s or (LOOK_S if self._is_busy() else IDLE_LOOK_S)
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(clock.until_tick_s(loop.time(), again_s), self.look)
        if (slept := self._sleeps.look()) is not None:
            _log.warning("the machine was suspended for %.1f s", slept.slept_s)
            self._note(slept)

    def look_before_edge(self) -> None:
        """Check before a window opens or is judged."""
        self.look(LOOK_S)
