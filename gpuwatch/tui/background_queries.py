"""Queries of the daemon and of the history, each in a thread: a hanging query does not block keys."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from gpuwatch import clock
from gpuwatch.errors import DaemonError, StoreError
from gpuwatch.tui.data_interfaces import HistorySource
from gpuwatch.view.live import Live, Looker

SILENT_S = 2.0  # after this wait for an answer, the screen is out of date
AGAIN_NS = 5_000_000_000  # pause after the store refused a query
_T = TypeVar("_T")


class LiveFeed:
    """The last answer of a source and the reason why no newer one exists; a recording has no source."""

    def __init__(self, source: Looker | None) -> None:
        self.source = source
        self.live: Live | None = None
        self.problem: str | None = None  # why the last poll failed or has no answer
        self.code = ""  # the code of that failure, as in DaemonError
        self._polled_ns: int | None = None  # start of the pending poll

    def begin(self) -> bool:
        """Mark a poll as pending.  Return True if the caller must run ``poll``: a source exists, and no poll is pending."""
        if self.source is None or self._polled_ns is not None:
            return False
        self._polled_ns = clock.now_ns()
        return True

    async def poll(self) -> Live | None:
        """Poll once, in a thread; return None without a source, or after an error, which sets ``problem``."""
        if self.source is None:
            return None
        try:
            self.live, self.problem = await asyncio.to_thread(self.source.look), None
        except DaemonError as error:
            self.problem, self.code = str(error), error.code
            return None
        finally:
            self._polled_ns = None
        return self.live

    def check_silence(self) -> bool:
        """Return True, and set the problem, if a poll after the first answer has been pending for too long."""
        silent_s = (clock.now_ns() - self._polled_ns) / 1e9 if self._polled_ns is not None else 0.0
        if silent_s <= SILENT_S or self.live is None:
            return False
        self.problem, self.code = f"no answer from the daemon for {silent_s:.0f} s", "silent"
        return True

    def close(self) -> None:
        if self.source is not None:
            self.source.close()


class HistoryFetcher:
    """A screen's history queries, at most one at a time; none without a history source."""

    def __init__(self, past: HistorySource | None) -> None:
        self._past = past
        self._is_busy = False
        self._refused_ns = 0
        self.refusal: str | None = None  # reason of the store's refusal

    def can_fetch(self, at_ns: int) -> bool:
        """Return True if a query would be sent at this time."""
        if self._past is None or self._is_busy:
            return False
        return self.refusal is None or abs(at_ns - self._refused_ns) >= AGAIN_NS

    async def fetch(self, query: Callable[[HistorySource], _T], at_ns: int) -> _T | None:
        """Run a query; return None without a source, if the store refused, or if another query is pending."""
        if self._past is None or self._is_busy:
            return None
        self._is_busy = True
        try:
            answer = await asyncio.to_thread(query, self._past)
            self.refusal = None
        except StoreError as error:
            self.refusal, self._refused_ns = str(error), at_ns
            return None
        finally:
            self._is_busy = False
        return answer
