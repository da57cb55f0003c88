"""Other processes on the GPU during a window: foreign processes, processes that may be the window's own, other windows.

Only complete process lists show that no other process was there; memory and utilisation cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

from annotate.derived.dark_time import DarkInterval, list_intervals
from annotate.derived.presence import Presence, own_was_listed, presences, unexplained_bytes
from annotate.evidence import STALE_NS, Evidence, OtherWindow, ProcessList, Visibility

ACTIVE_RATIO = 0.02  # the driver's utilisation record shows 1-2 % for a process that does nothing
HIDDEN_BYTES = 64e6  # on an H200, 9-15 MB stay unexplained with every tenant visible; a bare context takes 79 MB
_UNREAD_NS = 500_000_000  # the list is read five times a second; a neighbour fits into a longer silence


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The other processes on a window's GPU, and the coverage of the process lists.

    ``perhaps_own`` holds at most one process: it may be the measured one, seen from outside its PID namespace.
    ``hidden_bytes`` is memory that no listed process explains; 0 if it is below the limit or not known.
    """

    computing: tuple[Presence, ...] = ()  # listed, and not only drawing
    drawing: tuple[Presence, ...] = ()  # listed graphics processes, idle ones among them
    unlisted: tuple[Presence, ...] = ()  # only in the utilisation record, or on a list without own processes
    perhaps_own: tuple[Presence, ...] = ()
    windows: tuple[OtherWindow, ...] = ()
    hidden_bytes: float = 0.0
    is_whole: bool = False  # every list shows every process of the machine
    own_listed: bool = False
    edges_listed: bool = False  # a list was read near both edges
    silences: tuple[DarkInterval, ...] = ()

    @property
    def at_work(self) -> tuple[Presence, ...]:
        """Return the foreign processes, without graphics processes that were at rest."""
        return (*self.computing, *(each for each in self.drawing if not is_at_rest(each)), *self.unlisted)

    @property
    def any_foreign(self) -> bool:
        return bool(self.at_work or self.windows or self.hidden_bytes)

    @property
    def silent_ns(self) -> int:
        return sum(each.length_ns for each in self.silences)


def is_at_rest(drawing: Presence, active_ratio: float = ACTIVE_RATIO) -> bool:
    """Return whether the record shows a graphics process at rest throughout; False if unrecorded or arrived later."""
    seen = drawing.recorded and drawing.peak_ratio is not None
    return seen and (drawing.peak_ratio or 0.0) <= active_ratio and not drawing.arrived


def neighbours(
    evidence: Evidence,
    *,
    hidden_bytes: Annotated[float, "unexplained memory below this is less than a bare context"] = HIDDEN_BYTES,
) -> Neighbours:
    """Return the processes that shared the window's GPU, by lists, the utilisation record, memory and the daemon."""
    lists = _lists(evidence)
    whole = bool(lists) and all(each.visibility is Visibility.HOST for each in lists)
    own_listed = own_was_listed(evidence)
    others = [each for each in presences(evidence) if not each.own]
    named = [each for each in others if each.listed or (each.peak_ratio or 0.0) > ACTIVE_RATIO]
    perhaps_own: tuple[Presence, ...] = ()
    if not own_listed and (not whole or not evidence.window.pids):
        # The busiest process may be the measured one under another PID.
        perhaps_own = tuple(sorted(named, key=Presence.load, reverse=True)[:1])
    listed = [each for each in named if each.listed and each not in perhaps_own]
    # A list without own processes may be of another PID namespace: further PIDs are unknown, not listed neighbours.
    beyond = listed if perhaps_own else []
    rest_bytes = unexplained_bytes(evidence) if own_listed else None  # otherwise most unexplained memory is the window's own
    return Neighbours(
        computing=tuple(each for each in listed if not each.graphics and each not in beyond),
        drawing=tuple(each for each in listed if each.graphics and each not in beyond),
        unlisted=(*(each for each in named if not each.listed and each not in perhaps_own), *beyond),
        perhaps_own=perhaps_own,
        windows=_foreign_windows(evidence),
        hidden_bytes=rest_bytes if rest_bytes is not None and rest_bytes > hidden_bytes else 0.0,
        is_whole=whole,
        own_listed=own_listed,
        edges_listed=_edges_listed(evidence),
        silences=list_intervals(evidence, 1.0),
    )


def _lists(evidence: Evidence) -> list[ProcessList]:
    window, lists = evidence.window, evidence.trace.process_lists
    inside = [each for each in lists if window.begin_ns <= each.at_ns <= window.end_ns]
    before = [each for each in lists if window.begin_ns - STALE_NS <= each.at_ns < window.begin_ns][-1:]
    after = [each for each in lists if each.at_ns > window.end_ns][:1]
    return [*before, *inside, *after]


def _edges_listed(evidence: Evidence) -> bool:
    window, lists = evidence.window, evidence.trace.process_lists
    began = any(window.begin_ns - STALE_NS <= each.at_ns <= window.begin_ns + _UNREAD_NS for each in lists)
    return began and any(each.at_ns >= window.end_ns - STALE_NS for each in lists)


def _foreign_windows(evidence: Evidence) -> tuple[OtherWindow, ...]:
    """Return the overlapping windows of other processes.  Windows of the window's processes are nested and do not count."""
    window = evidence.window
    return tuple(
        each
        for each in evidence.overlapping
        if each.begin_ns < window.end_ns and each.end_ns > window.begin_ns and (each.pid is None or each.pid not in window.pids)
    )


def seen_span_ns(of: Neighbours) -> tuple[int, int] | None:
    """Return the span in which foreign processes or windows were seen, or None if none were."""
    ends = [presence_span_ns(of.at_work), *((each.begin_ns, each.end_ns) for each in of.windows)]
    known = list(chain.from_iterable(span for span in ends if span is not None))
    return (min(known), max(known)) if known else None


def presence_span_ns(of: Sequence[Presence]) -> tuple[int, int] | None:
    """Return the span in which any of these processes was seen; None without processes."""
    return (min(each.seen_begin_ns for each in of), max(each.seen_end_ns for each in of)) if of else None
