"""The first screen: every GPU, and open and recent windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.worker import Worker

from annotate.evidence import Reason
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.history_fetcher import HistoryFetcher
from gpuwatch.tui.overview_history import HistoryQuery, OverviewHistory
from gpuwatch.tui.requests import ExplainNames, OpenGpu, OpenWindow
from gpuwatch.tui.screens.screen_base import BaseScreen, QuietScroll
from gpuwatch.tui.text.open_window_hazards import OpenWindowHazards
from gpuwatch.tui.widgets.gpu_list import GpuList
from gpuwatch.tui.widgets.row_list import RowList, moved
from gpuwatch.tui.widgets.window_list import WindowList
from gpuwatch.view.live import Live


class OverviewScreen(BaseScreen):
    """One line may be chosen, in either table, and opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", "choose", id="up", show=False, tooltip="The GPU or window above"),
        Binding("down", "choose(1)", "choose", id="down", show=False, tooltip="The GPU or window below"),
        Binding("enter", "open", "open", id="open", key_display="⏎", tooltip="The chosen GPU or window in detail"),
        Binding("e", "explain", "explain", id="explain", show=False, tooltip="The page of what is found there"),
        Binding("p", "app.processes", "processes", id="processes", tooltip="Who is on the GPUs"),
        Binding("v", "app.events", "events", id="events", tooltip="What happened in the last hour"),
        *(
            Binding(str(number), f"number({number})", "GPU of that number", id=f"gpu{number}", show=False)
            for number in range(10)
        ),
    ]

    def __init__(self, past: HistorySource | None) -> None:
        super().__init__()
        self._asker = HistoryFetcher(past)
        self._trails = OverviewHistory()
        self._in_past = False
        self._live: Live | None = None
        self._chosen: str | None = None
        self._so_far = OpenWindowHazards()
        self._said: Mapping[str, Sequence[str]] = {}

    def body(self) -> Iterable[Widget]:
        yield QuietScroll(GpuList(), id="gpus")
        yield QuietScroll(WindowList(), id="windows")

    def note(self, live: Live) -> None:
        """An answer, whichever screen is on top: what it says against an open window is kept, and where the clocks are."""
        self._so_far.note(live)
        self._trails.note(live)

    def tell(self, content: ScreenContent) -> None:
        if content.live is not None:
            so_far = self._so_far
            if content.past_ns is not None:  # what was seen since is not of that moment
                so_far = OpenWindowHazards()
                so_far.note(content.live)
            self._live, self._said = content.live, so_far.said()
            self._in_past = content.past_ns is not None
            self._draw(content.live)
            self._wonder()

    def action_choose(self, by: int) -> None:
        if self._live is not None:
            self._choose(moved([*_uuids(self._live), *_runs(self._live)], self._chosen, by))

    def action_open(self) -> None:
        chosen = self._chosen if self._chosen is not None else next(iter(_uuids(self._live)), None)
        if chosen is not None:
            self._choose(chosen)
            self._open(chosen)

    def action_number(self, number: int) -> None:
        uuids = _uuids(self._live)
        if number < len(uuids):
            self._choose(uuids[number])
            self._open(uuids[number])
        else:
            self.notify(f"there is no GPU {number}", severity="warning", timeout=3)

    def action_explain(self) -> None:
        """Of a GPU, the reasons its clock is held by; of a window, what was found first."""
        live = self._live
        if live is None:
            return
        for gpu in live.gpus:
            if gpu.device.uuid == (self._chosen or _uuids(live)[0]):
                mask = gpu.said("event_reasons_mask") or 0
                names = tuple(reason.name or "" for reason in Reason if mask & reason)
                if names:
                    self.post_message(ExplainNames(names))
                else:
                    self.notify("no reason holds its clock", timeout=3)
        for window in live.windows:
            if window.run == self._chosen:
                if window.hazards:
                    self.post_message(ExplainNames((window.hazards[0],)))
                else:
                    self.notify("nothing was found there", timeout=3)

    @on(RowList.Chosen)
    def point(self, event: RowList.Chosen) -> None:
        self._choose(event.name)
        if event.opened:
            self._open(event.name)

    def _choose(self, name: str | None) -> None:
        self._chosen = name
        if self._live is not None:
            self._draw(self._live)
            for rows in self.query(RowList):
                self.keep_in_view(rows, name)

    def _wonder(self) -> None:
        """Ask for what of the last two minutes is not known yet."""
        if self._live is not None and self._asker.may(self._live.at_ns):
            question = self._trails.question(self._live, past=self._in_past)
            if question is not None:
                _: Worker[None] = self.run_worker(partial(self._ask, question))

    async def _ask(self, question: HistoryQuery) -> None:
        answer = await self._asker.ask(question.put, question.at_ns)
        if answer is not None:
            self._trails.take(question, answer)
        if self._live is not None and self.query(GpuList):  # not there any more as the monitor leaves
            self._draw(self._live)
            self._wonder()

    def _draw(self, live: Live) -> None:
        self.query_one(GpuList).tell(live, self.columns, self.app.size.height, self._trails, self._chosen)
        self.query_one(WindowList).tell(live, self.columns, self._said, self._chosen)

    def _open(self, name: str) -> None:
        self.post_message(OpenGpu(name) if name in _uuids(self._live) else OpenWindow(name))


def _uuids(live: Live | None) -> list[str]:
    return [gpu.device.uuid for gpu in live.gpus] if live is not None else []


def _runs(live: Live) -> list[str]:
    return [window.run for window in live.windows]
