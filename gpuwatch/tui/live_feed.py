"""The daemon's newest answer, polled in a thread."""

from __future__ import annotations

import asyncio

from gpuwatch import clock
from gpuwatch.errors import DaemonError
from gpuwatch.tui.data_interfaces import LiveSource
from gpuwatch.view.live import Live

SILENT_S = 2.0  # an unanswered poll this old: the screen no longer shows now


class LiveFeed:
    """The last answer of a source and the reason why there is no newer one; a recording has no source."""

    def __init__(self, source: LiveSource | None) -> None:
        self.source = source
        self.live: Live | None = None
        self.problem: str | None = None  # the last poll failed, or is unanswered
        self._polled_ns: int | None = None  # when the pending poll began

    def begin(self) -> bool:
        """Mark a poll as pending.  Return True if the caller must run ``poll``: there is a source, and no poll pending."""
        if self.source is None or self._polled_ns is not None:
            return False
        self._polled_ns = clock.now_ns()
        return True

    async def poll(self) -> Live | None:
        """Poll once, in a thread: a daemon that hangs, or starts, holds up no key."""
        if self.source is None:
            return None
        try:
            self.live, self.problem = await asyncio.to_thread(self.source.look), None
        except DaemonError as error:
            self.problem = str(error)
            return None
        finally:
            self._polled_ns = None
        return self.live

    def check_silence(self) -> bool:
        """Return True, and set the problem, if the pending poll has been unanswered for too long."""
        silent_s = (clock.now_ns() - self._polled_ns) / 1e9 if self._polled_ns is not None else 0.0
        if silent_s <= SILENT_S or self.live is None:
            return False
        self.problem = f"no answer from the daemon for {silent_s:.0f} s"
        return True

    def close(self) -> None:
        if self.source is not None:
            self.source.close()
