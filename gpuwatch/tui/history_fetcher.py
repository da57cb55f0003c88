"""Who asks the past on behalf of a screen: one question at a time, in a thread, and none soon after a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from gpuwatch.errors import StoreError
from gpuwatch.tui.data_interfaces import HistorySource

AGAIN_NS = 5_000_000_000  # after a store refused
_T = TypeVar("_T")


class HistoryFetcher:
    def __init__(self, past: HistorySource | None) -> None:
        self._past = past
        self._asking = False
        self._refused_ns = 0
        self.why: str | None = None  # the store refused

    def may(self, at_ns: int) -> bool:
        """Whether a question would be asked at that time."""
        if self._past is None or self._asking:
            return False
        return self.why is None or abs(at_ns - self._refused_ns) >= AGAIN_NS

    async def ask(self, question: Callable[[HistorySource], _T], at_ns: int) -> _T | None:
        """None where the store refused, or nobody may ask now."""
        if self._past is None or self._asking:
            return None
        self._asking = True
        try:
            answer = await asyncio.to_thread(question, self._past)
            self.why = None
        except StoreError as error:
            self.why, self._refused_ns = str(error), at_ns
            return None
        finally:
            self._asking = False
        return answer
