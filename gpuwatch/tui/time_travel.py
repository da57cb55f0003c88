"""Where in time the screens look: the moment that is wanted, the one that was answered, and what was there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpuwatch.errors import GpuwatchError
from gpuwatch.tui.data_interfaces import HistorySource
from gpuwatch.view.live import Live

END_NS = 1 << 62  # later than anything: the last moment there is


class TimeTravel:
    """One question at a time, in a thread; of moments wanted meanwhile only the last is asked for."""

    def __init__(self, past: HistorySource, at: Callable[[int], str], *, ends: bool) -> None:
        """``ends``: after its last moment there is nothing, not now."""
        self._past = past
        self._at = at
        self._ends = ends
        self._wanted_ns: int | None = None
        self.asking = False
        self.then: Live | None = None  # what was answered; None: nobody went back
        self.span_ns: tuple[int, int] | None = None

    @property
    def past_ns(self) -> int | None:
        return self.then.at_ns if self.then is not None else None

    @property
    def aim_ns(self) -> int | None:
        """From where the next step is taken: keys may come faster than answers."""
        return self._wanted_ns if self._wanted_ns is not None else self.past_ns

    def want(self, at_ns: int) -> bool:
        """Whether somebody must ``follow``: nobody does yet."""
        self._wanted_ns = at_ns
        asking, self.asking = self.asking, True
        return not asking

    def leave(self) -> None:
        """Back to now."""
        self._wanted_ns = self.then = None

    async def follow(self) -> str | None:
        """Ask until what is wanted last was answered.  Gives one line to show, if there is something to say."""
        said: str | None = None
        try:
            while (wanted_ns := self._wanted_ns) is not None:
                try:
                    span_ns, then, said = await asyncio.to_thread(self._look, wanted_ns)
                except GpuwatchError as error:
                    self._wanted_ns = None
                    return str(error)
                if self._wanted_ns is None:  # somebody went back to now meanwhile
                    return None
                self.span_ns, self.then = span_ns, then
                if self._wanted_ns == wanted_ns:
                    self._wanted_ns = None
        finally:
            self.asking = False
        return said

    def _look(self, wanted_ns: int) -> tuple[tuple[int, int], Live, str | None]:
        span_ns = self._past.span_ns()
        if span_ns is None:
            raise GpuwatchError("nothing is kept yet to go back to")
        begin_ns, end_ns = span_ns
        if wanted_ns < begin_ns:
            return span_ns, self._past.live(begin_ns), f"nothing is kept before {self._at(begin_ns)}"
        if wanted_ns > end_ns and self._ends:
            return span_ns, self._past.live(end_ns), None if wanted_ns >= END_NS else f"it ends at {self._at(end_ns)}"
        return span_ns, self._past.live(min(wanted_ns, END_NS)), None
