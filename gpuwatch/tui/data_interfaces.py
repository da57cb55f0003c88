"""The interfaces of the screens: a source of the past, and the content of each screen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from annotate.evidence import Event, Trace
from annotate.verdict import Verdict
from gpuwatch.view.live import Live


class HistorySource(Protocol):
    """A source of history, such as a store or a recording.

    Times are CLOCK_MONOTONIC nanoseconds of the displayed boot, in a log of nvidia-smi nanoseconds since 1970.  Every query
    may raise StoreError with a one-line message.  The drawing thread calls only ``close``.
    """

    def span_ns(self) -> tuple[int, int] | None:
        """Return the first and last moment with any record, or None for an empty store."""
        ...

    def live(self, at_ns: int) -> Live:
        """Return the answer as of ``at_ns``: valid readings, processes on the GPUs, windows that had begun."""
        ...

    def trace(self, uuid: str, begin_ns: int, end_ns: int) -> Trace:
        """Return all readings of one GPU between two moments."""
        ...

    def events(self, begin_ns: int, end_ns: int) -> Sequence[Event]:
        """Return the events of every GPU between two moments, oldest first."""
        ...

    def verdicts(self, run_id: str) -> Sequence[Verdict]:
        """Return a window's verdicts, one per GPU, the worst first; empty before the judge has finished."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenContent:
    """The content of every screen; ``live`` holds the present, or the moment ``past_ns`` while the user views the past."""

    live: Live
    format_time: Callable[[int], str]  # formats a moment as text
    problem: str | None = None  # reason why polling the daemon failed
    is_paused: bool = False
    past_ns: int | None = None  # None: live
