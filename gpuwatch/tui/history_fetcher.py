"""Queries of a screen to the past: one at a time, in a thread, and none soon after a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from gpuwatch.errors import StoreError
from gpuwatch.tui.data_interfaces import HistorySource

AGAIN_NS = 5_000_000_000  # after a store refused
_T = TypeVar("_T")


class HistoryFetcher:
    """The one pending query of a screen; without a history source there is none."""

    def __init__(self, past: HistorySource | None) -> None:
        self._past = past
        self._is_busy = False
        self._refused_ns = 0
        self.refusal: str | None = None  # why the store refused

    def can_fetch(self, at_ns: int) -> bool:
        """Return True if a query would be sent at that time."""
        if self._past is None or self._is_busy:
            return False
        return self.refusal is None or abs(at_ns - self._refused_ns) >= AGAIN_NS

    async def fetch(self, query: Callable[[HistorySource], _T], at_ns: int) -> _T | None:
        """Run a query; return None where the store refused, or another query is pending."""
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
