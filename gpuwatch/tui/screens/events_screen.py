"""The screen of the last hour: the GPUs' events, and the windows."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import ClassVar

from textual.binding import Binding, BindingType

from annotate.evidence import Event
from annotate.output import report
from gpuwatch.errors import GpuwatchError
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.requests import GoToMoment
from gpuwatch.tui.screens.screen_base import ChoosingScreen, SecondaryScreen
from gpuwatch.tui.text import words
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.row_list import RowList
from gpuwatch.view.live import Live

HOUR_NS = 3_600_000_000_000
_AGAIN_NS = 2_000_000_000  # interval of queries to the store while the screen shows events
_GRAVE = {"xid": Tone.BAD, "lost": Tone.BAD, "ecc": Tone.WARN, "back": Tone.GOOD}


@dataclass(frozen=True, slots=True)
class EventEntry:
    """One line of the screen, with a unique name."""

    at_ns: int
    uuids: tuple[str, ...]
    what: str
    words: str
    tone: Tone
    name: str


def last_hour(live: Live, events: Sequence[Event]) -> list[EventEntry]:
    """Return the events, and the starts and ends of windows, in the hour before the live answer, newest first."""
    every = chain(map(_of_event, events), _of_windows(live))
    return sorted((each for each in every if live.at_ns - HOUR_NS <= each.at_ns <= live.at_ns), key=lambda each: -each.at_ns)


def _of_event(event: Event) -> EventEntry:
    what = f"Xid {event.value}" if event.kind == "xid" and event.value is not None else event.kind
    text = report.plain(event.text or ("" if event.value is None or event.kind == "xid" else str(event.value)))
    return EventEntry(
        event.at_ns,
        (event.uuid,),
        report.plain(what),
        text,
        _GRAVE.get(event.kind, Tone.NOTE),
        f"{event.uuid} {event.kind} {event.at_ns} {event.value}",
    )


def _of_windows(live: Live) -> Iterator[EventEntry]:
    for window in live.windows:
        label, uuids = report.plain(window.label or window.run), tuple(window.uuids)
        yield EventEntry(window.begin_ns, uuids, "begun", f"window {label}", Tone.DIM, f"{window.run} begun")
        if window.end_ns is not None:
            chip = words.status(window.status)
            more = f": {', '.join(window.hazards)}" if window.hazards else ""
            yield EventEntry(
                window.end_ns, uuids, "ended", f"window {label}, {chip.name}{more}", chip.tone, f"{window.run} ended"
            )


def lines(found: Sequence[EventEntry], live: Live, format_time: Callable[[int], str], width: int) -> Iterator[list[Piece]]:
    """Draw the table, its heading first."""
    places = {gpu.device.uuid: str(position) for position, gpu in enumerate(live.gpus)}
    times = [format_time(each.at_ns) for each in found]
    column = max([8, *map(len, times)])
    yield [Piece(f"{'time':<{column}}  GPU   what", Tone.DIM)]
    for each, when in zip(found, times, strict=True):
        gpus = words.cut(",".join(places.get(uuid, "?") for uuid in each.uuids) or words.NOTHING, 5)
        yield [
            Piece(f"{when:<{column}}  {gpus:<5} "),
            Piece(f"{words.cut(each.what, 9):<10}", each.tone),
            Piece(words.cut(each.words, max(width - column - 18, 8))),
        ]
    if not found:
        yield [Piece("  no event in the hour before", Tone.DIM)]


class EventsScreen(ChoosingScreen, SecondaryScreen):
    """The last hour, newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", "choose", id="up", show=False, tooltip="The event above, a newer one"),
        Binding("down", "choose(1)", "choose", id="down", show=False, tooltip="The event below, an older one"),
        Binding("enter", "open", "jump", id="open", key_display="⏎", tooltip="Go back to the time of the event"),
    ]

    def __init__(self, past: HistorySource | None) -> None:
        super().__init__()
        self._past = past
        self._content: ScreenContent | None = None
        self._events: Sequence[Event] = ()
        self._found: list[EventEntry] = []
        self._asked_ns: int | None = None
        self._asking = False

    def show_content(self, content: ScreenContent) -> None:
        self._content = content
        at_ns = content.live.at_ns
        is_due = self._asked_ns is None or not 0 <= at_ns - self._asked_ns < _AGAIN_NS
        if self._past is not None and not self._asking and is_due:
            self._asked_ns, self._asking = at_ns, True
            self.run_worker(self._ask(self._past, at_ns))
        self.draw()

    async def _ask(self, past: HistorySource, at_ns: int) -> None:
        try:
            self._events = await asyncio.to_thread(past.events, at_ns - HOUR_NS, at_ns)
        except GpuwatchError as error:
            self.notify(report.plain(str(error)), severity="warning", timeout=5)
        finally:
            self._asking = False
        self.draw()

    def draw(self) -> None:
        if self._content is None or not self.is_attached:
            return
        self._found = last_hour(self._content.live, self._events)
        shown = lines(self._found, self._content.live, self._content.format_time, self.columns)
        self.query_one(RowList).show_rows(zip_longest([None, *self.names()], shown), self._chosen)

    def names(self) -> list[str]:
        return [each.name for each in self._found]

    def action_open(self) -> None:
        chosen = next((each for each in self._found if each.name == self._chosen), None)
        if chosen is not None:
            self.post_message(GoToMoment(chosen.at_ns))
