"""What the screens stand on: where they look now, where they look back, and what each is handed at every draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from annotate.evidence import Event, Trace
from annotate.verdict import Verdict
from gpuwatch.view.live import Live


class LiveSource(Protocol):
    """Now: ``live.Looker``, or what a test shows."""

    def look(self) -> Live:
        """Raises DaemonError; the next call tries anew."""
        ...

    def start_again(self) -> None:
        """The next question may start a daemon."""
        ...

    def close(self) -> None: ...


class HistorySource(Protocol):
    """Back in time: ``past.Stored`` over the store, ``past.Recorded`` over a recording.

    Times are CLOCK_MONOTONIC nanoseconds of the boot looked at.  Every method may raise StoreError, one line to show; none is
    called on the thread that draws.
    """

    def span_ns(self) -> tuple[int, int] | None:
        """First and last moment there is anything of; None for an empty store."""
        ...

    def live(self, at_ns: int) -> Live:
        """What a screen would have shown then: readings in force, who was on the GPUs, windows that had begun."""
        ...

    def trace(self, uuid: str, begin_ns: int, end_ns: int) -> Trace:
        """All readings of one GPU between two moments."""
        ...

    def events(self, begin_ns: int, end_ns: int) -> Sequence[Event]:
        """Events of every GPU between two moments, oldest first."""
        ...

    def verdicts(self, run_id: str) -> Sequence[Verdict]:
        """A window's verdicts, one a GPU, the worst first; empty while it has none."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenContent:
    """What every screen is handed when it draws: ``live`` is of now, or of ``past_ns`` if somebody went back in time."""

    live: Live | None
    at: Callable[[int], str]  # the wall's time of a moment
    why: str | None = None  # the daemon could not be asked
    paused: bool = False
    past_ns: int | None = None  # None: live
