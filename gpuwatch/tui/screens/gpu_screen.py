"""The screen of one GPU: its curves over one axis of time, now or in the past, and the exact values of any moment."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.worker import Worker

from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.gpu_timeline import GpuTimeline
from gpuwatch.tui.screens.screen_base import SecondaryScreen
from gpuwatch.tui.text import gpu_facts
from gpuwatch.tui.text.plot import GUTTER_COUNT
from gpuwatch.tui.time_range import Viewport
from gpuwatch.tui.widgets.curves import Curves
from gpuwatch.tui.widgets.text_lines import TextLines
from gpuwatch.view.live import LiveGpu

ROOMY_COUNT = 30  # least height of a screen with the line of limits


class GpuScreen(SecondaryScreen):
    """The screen of one GPU."""

    CSS = """
    GpuScreen #head, GpuScreen #limits, GpuScreen #now { height: 1; }
    GpuScreen Curves { height: 1fr; }
    GpuScreen #processes { height: auto; }
    GpuScreen.old #now, GpuScreen.old #processes { opacity: 75%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left",
            "cursor(-1)",
            "cursor",
            id="cursor-back",
            key_display="← →",
            tooltip="Show exact values of an earlier moment",
        ),
        Binding(
            "right", "cursor(1)", "cursor later", id="cursor-on", show=False, tooltip="Show exact values of a later moment"
        ),
        Binding("plus,equals_sign", "zoom(-1)", "zoom", id="zoom-in", key_display="+ -", tooltip="A shorter time range"),
        Binding("minus", "zoom(1)", "zoom out", id="zoom-out", show=False, tooltip="A longer time range"),
        Binding("shift+left", "pan(-1)", "pan", id="pan-back", show=False, tooltip="Half a screen earlier"),
        Binding("shift+right", "pan(1)", "pan later", id="pan-on", show=False, tooltip="Half a screen later"),
        Binding("end", "follow", "follow", id="follow", show=False, tooltip="Remove the cursor and follow the newest reading"),
        Binding("n,tab", "turn(1)", "next", id="gpu-next", key_display="n", tooltip="The next GPU, at the same time"),
        Binding("N,shift+tab", "turn(-1)", "GPU before", id="gpu-before", show=False, tooltip="The GPU before this one"),
    ]

    def __init__(self, uuid: str, past: HistorySource | None, content: ScreenContent) -> None:
        super().__init__()
        self._timeline = GpuTimeline(uuid, past)
        self._content = content
        self._drawn_ns = 0

    def body(self) -> Iterable[Widget]:
        yield TextLines(id="head")
        yield TextLines(id="limits")
        yield TextLines(id="now")
        yield Curves()
        yield TextLines(id="processes")

    def on_mount(self) -> None:
        self.show_content(self._content)

    def on_resize(self) -> None:
        self._write()
        self.call_after_refresh(self._draw)

    @property
    def uuid(self) -> str:
        return self._timeline.uuid

    def show_content(self, content: ScreenContent) -> None:
        """Show this content; live curves are redrawn less often."""
        before, self._content = self._content, content
        if before.past_ns != content.past_ns:
            self._timeline.range.follow()
            self._drawn_ns = 0
        if not self.is_mounted:
            return
        gpu = self._gpu
        if gpu is not None and content.past_ns is None and content.problem is None:
            self._timeline.history.add_live(gpu)
        self._write()
        age_ns = abs(content.live.at_ns - self._drawn_ns)
        if content.past_ns is not None or age_ns >= self._timeline.redraw_every_ns(self._viewport):
            self._draw()
        self._fetch_missing()

    def action_cursor(self, step: int) -> None:
        self._timeline.range.move(step, self._viewport)
        self._redraw()

    def action_pan(self, step: int) -> None:
        self._timeline.range.pan(step, self._viewport)
        self._redraw()

    def action_zoom(self, step: int) -> None:
        self._timeline.range.zoom(step, self._viewport)
        self._redraw()

    def action_follow(self) -> None:
        self._timeline.range.follow()
        self._redraw()

    def action_turn(self, step: int) -> None:
        """Show another GPU at the same time."""
        uuids = [each.device.uuid for each in self._content.live.gpus]
        if len(uuids) > 1 or (uuids and self.uuid not in uuids):
            place = (uuids.index(self.uuid) + step) % len(uuids) if self.uuid in uuids else 0
            self._timeline.turn_to(uuids[place])
            self._drawn_ns = 0
            self.show_content(self._content)

    def on_curves_picked(self, picked: Curves.Picked) -> None:
        self._timeline.range.cursor_ns = picked.at_ns
        self._redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - textual's signature
        """Offer the keys for another GPU only if there are several."""
        return action != "turn" or len(self._content.live.gpus) > 1

    @property
    def _gpu(self) -> LiveGpu | None:
        return next((gpu for gpu in self._content.live.gpus if gpu.device.uuid == self.uuid), None)

    @property
    def _viewport(self) -> Viewport:
        width = self.query_one(Curves).size.width or self.size.width
        return self._timeline.viewport(self._content, width - GUTTER_COUNT)

    def _redraw(self) -> None:
        self._draw()
        self._fetch_missing()

    def _write(self) -> None:
        gpu, live, height = self._gpu, self._content.live, self.size.height
        self.query_one("#head", TextLines).show([gpu_facts.head(self.uuid, gpu, live, self.columns)])
        if gpu is None:
            return
        limits = self.query_one("#limits", TextLines)
        limits.display = height >= ROOMY_COUNT  # on a small screen the curves take this line
        limits.show([gpu_facts.limits(gpu, self.columns)])
        self.query_one("#now", TextLines).show([gpu_facts.now(gpu, live, self.columns)])
        most = 2 if height < ROOMY_COUNT else 4 if height < 2 * ROOMY_COUNT else 8
        self.query_one("#processes", TextLines).show(gpu_facts.process_lines(gpu, live, self.columns, most))

    def _draw(self) -> None:
        if (gpu := self._gpu) is not None:
            self._drawn_ns = self._content.live.at_ns
            self.query_one(Curves).show(self._timeline.view(gpu, self._content, self._viewport))

    def _fetch_missing(self) -> None:
        if (fetch := self._timeline.next_fetch(self._viewport, self._content.live.at_ns)) is not None:
            _: Worker[None] = self.run_worker(partial(self._fetch, fetch))

    async def _fetch(self, fetch: Callable[[], Awaitable[None]]) -> None:
        await fetch()
        if self.is_mounted and self.query(Curves):
            self._redraw()
