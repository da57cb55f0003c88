"""The first screen: every GPU, and open and recent windows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.worker import Worker

from annotate.evidence import Reason
from gpuwatch.tui.background_queries import HistoryFetcher
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.overview_history import HistoryQuery, OverviewHistory
from gpuwatch.tui.requests import ExplainNames, OpenGpu, OpenWindow
from gpuwatch.tui.screens.screen_base import ChoosingScreen, QuietScroll
from gpuwatch.tui.text import overview_tables
from gpuwatch.tui.text.overview_tables import Arrangement
from gpuwatch.tui.text.window_coverage import OpenWindowHazards
from gpuwatch.tui.widgets.gpu_list import GpuList
from gpuwatch.tui.widgets.row_list import RowList
from gpuwatch.view.live import Live


class WindowList(RowList):
    """The list of windows, each with a verdict or open state, and the rules with findings."""

    def show_live(
        self, live: Live, width: int, so_far: Mapping[str, Sequence[str]], chosen: str | None, arrangement: Arrangement
    ) -> None:
        names = [None, *(window.run for window in arrangement.of(live.windows))]
        self.show_rows(zip_longest(names, overview_tables.window_lines(live, width, so_far, arrangement)), chosen)


class OverviewScreen(ChoosingScreen):
    """The tables of GPUs and windows; the user can select and open one line in either."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", "choose", id="up", show=False, tooltip="The GPU or window above"),
        Binding("down", "choose(1)", "choose", id="down", show=False, tooltip="The GPU or window below"),
        Binding("enter", "open", "open", id="open", key_display="⏎", tooltip="The chosen GPU or window in detail"),
        Binding("o", "order", "order", id="order", show=False, tooltip="The worst windows first, or the newest"),
        Binding("f", "filter", "filter", id="filter", show=False, tooltip="Show windows of one verdict, in turn; then all"),
        Binding("e", "explain", "explain", id="explain", show=False, tooltip="The page of the finding or reason"),
        Binding("p", "app.processes", "processes", id="processes", tooltip="Every process on every GPU"),
        Binding("v", "app.events", "events", id="events", tooltip="Driver reports and windows of the last hour"),
        *(
            Binding(str(number), f"number({number})", "GPU of that number", id=f"gpu{number}", show=False)
            for number in range(10)
        ),
    ]

    def __init__(self, past: HistorySource | None) -> None:
        super().__init__()
        self._fetcher = HistoryFetcher(past)
        self._histories = OverviewHistory()
        self._is_past = False
        self._arrangement = Arrangement()
        self._live: Live | None = None
        self._hazards = OpenWindowHazards()
        self._hazard_names: Mapping[str, Sequence[str]] = {}

    def body(self) -> Iterable[Widget]:
        yield QuietScroll(GpuList(), id="gpus")
        yield QuietScroll(WindowList(), id="windows")

    def add_live(self, live: Live) -> None:
        """Add a live answer's clocks, reasons and hazards of open windows, also while another screen is on top."""
        self._hazards.add_live(live)
        self._histories.add_live(live)

    def show_content(self, content: ScreenContent) -> None:
        hazards = self._hazards
        if content.past_ns is not None:  # later hazards do not belong to the past moment
            hazards = OpenWindowHazards()
            hazards.add_live(content.live)
        could_open = self.check_action("open", ())
        self._live, self._hazard_names = content.live, hazards.names()
        self._is_past = content.past_ns is not None
        if self.check_action("open", ()) is not could_open:
            self.refresh_bindings()
        self.draw()
        self._fetch_missing()

    def names(self) -> list[str]:
        if self._live is None:
            return []
        return [*self._uuids, *(window.run for window in self._arrangement.of(self._live.windows))]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - textual's signature
        """Offer the key that opens a GPU or window only if there is one."""
        return action != "open" or bool(self.names())

    def action_order(self) -> None:
        self._arrangement = replace(self._arrangement, is_worst_first=not self._arrangement.is_worst_first)
        self.draw()

    def action_filter(self) -> None:
        windows = self._live.windows if self._live is not None else ()
        self._arrangement = replace(self._arrangement, status=self._arrangement.next_status(windows))
        self.draw()

    def action_open(self) -> None:
        chosen = self._chosen if self._chosen is not None else next(iter(self._uuids), None)
        if chosen is not None:
            self.choose(chosen)
            self.post_message(OpenGpu(chosen) if chosen in self._uuids else OpenWindow(chosen))

    def action_number(self, number: int) -> None:
        if number < len(self._uuids):
            self._chosen = self._uuids[number]
            self.action_open()
        else:
            self.notify(f"expected a number below {len(self._uuids)}, found {number}", severity="warning", timeout=3)

    def action_explain(self) -> None:
        """Explain the reasons behind a GPU's clock, or the first finding of a window."""
        live, chosen = self._live, self._chosen
        if live is None:
            return
        names, notice = [], "this window has no finding"
        for window in live.windows:
            if window.run == chosen:
                names = window.hazards[:1]
        for gpu in live.gpus:
            if gpu.device.uuid == (chosen or self._uuids[0]):
                mask, notice = gpu.said("event_reasons_mask"), "no reason limits this GPU's clock"
                if mask is None:
                    mask, notice = 0, "the reasons behind this GPU's clock were not observed"
                names = [reason.name or "" for reason in Reason if mask & reason]
        if names:
            self.post_message(ExplainNames(tuple(names)))
        elif chosen or live.gpus:
            self.notify(notice, timeout=3)

    @property
    def _uuids(self) -> list[str]:
        return [gpu.device.uuid for gpu in self._live.gpus] if self._live is not None else []

    def _fetch_missing(self) -> None:
        if self._live is not None and self._fetcher.can_fetch(self._live.at_ns):
            query = self._histories.next_query(self._live, is_past=self._is_past)
            if query is not None:
                _: Worker[None] = self.run_worker(partial(self._fetch, query))

    async def _fetch(self, query: HistoryQuery) -> None:
        answer = await self._fetcher.fetch(query.run, query.at_ns)
        if answer is not None:
            self._histories.add_answer(query, answer)
        if self.query(GpuList):  # the widget is gone while the monitor exits
            self.draw()
            self._fetch_missing()

    def draw(self) -> None:
        if self._live is not None:
            self.query_one(GpuList).show_live(self._live, self.columns, self.app.size.height, self._histories, self._chosen)
            self.query_one(WindowList).show_live(self._live, self.columns, self._hazard_names, self._chosen, self._arrangement)
