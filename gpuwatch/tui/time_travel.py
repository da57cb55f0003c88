"""Time travel: the requested moment, and the moment on display."""

import asyncio
from collections.abc import Callable

from gpuwatch.errors import GpuwatchError
from gpuwatch.tui.data_interfaces import HistorySource
from gpuwatch.view.live import Live

END_NS = 1 << 62  # later than any time: requests the last recorded moment


class TimeTravel:
    """Queries for past moments, one at a time in a thread; a newer request replaces a waiting one."""

    def __init__(self, past: HistorySource, format_time: Callable[[int], str], *, has_end: bool) -> None:
        """Start at the present; with ``has_end``, the source has no moment after its last record."""
        self._past = past
        self._format_time = format_time
        self._has_end = has_end
        self._wanted_ns: int | None = None
        self.is_querying = False
        self.then: Live | None = None  # the displayed moment; None means now
        self.span_ns: tuple[int, int] | None = None

    @property
    def past_ns(self) -> int | None:
        return self.then.at_ns if self.then is not None else None

    @property
    def aim_ns(self) -> int | None:
        """Return the moment from which the next step starts, None for now: keys may arrive faster than answers."""
        return self._wanted_ns if self._wanted_ns is not None else self.past_ns

    def request(self, at_ns: int) -> bool:
        """Request a moment.  Return True if the caller must start ``follow``, because it is not running yet."""
        self._wanted_ns = at_ns
        was_querying, self.is_querying = self.is_querying, True
        return not was_querying

    def leave(self) -> None:
        """Return to now."""
        self._wanted_ns = self.then = None

    async def follow(self) -> str | None:
        """Query until the last requested moment has an answer; return one line to show, or None."""
        notice: str | None = None
        try:
            while (wanted_ns := self._wanted_ns) is not None:
                try:
                    span_ns, then, notice = await asyncio.to_thread(self._read, wanted_ns)
                except GpuwatchError as error:
                    self._wanted_ns = None
                    return str(error)
                if self._wanted_ns is None:  # the user returned to now meanwhile
                    return None
                self.span_ns, self.then = span_ns, then
                if self._wanted_ns == wanted_ns:
                    self._wanted_ns = None
        finally:
            self.is_querying = False
        return notice

    def _read(self, wanted_ns: int) -> tuple[tuple[int, int], Live, str | None]:
        span_ns = self._past.span_ns()
        if span_ns is None:
            raise GpuwatchError("the store holds no earlier moment yet")
        begin_ns, end_ns = span_ns
        if wanted_ns < begin_ns:
            return span_ns, self._past.live(begin_ns), f"the store holds nothing before {self._format_time(begin_ns)}"
        if wanted_ns > end_ns and self._has_end:
            notice = None if wanted_ns >= END_NS else f"the recording ends at {self._format_time(end_ns)}"
            return span_ns, self._past.live(end_ns), notice
        return span_ns, self._past.live(min(wanted_ns, END_NS)), None
