"""One GPU in detail: its curves over one axis of time, now or back then, and the exact values of any moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.visual import VisualType
from textual.widget import Widget
from textual.worker import Worker

from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.gpu_history import GpuHistory
from gpuwatch.tui.history_fetcher import HistoryFetcher
from gpuwatch.tui.screens.screen_base import SecondaryScreen
from gpuwatch.tui.text import gpu_facts
from gpuwatch.tui.text.plot import GUTTER_COUNT
from gpuwatch.tui.time_range import TimeRange, Viewport
from gpuwatch.tui.widgets.curves import Curves
from gpuwatch.tui.widgets.gpu_chart import ChartView
from gpuwatch.tui.widgets.text_lines import TextLines
from gpuwatch.view.live import LiveGpu
from gpuwatch.wire.messages import Shown

DRAWN_NS = 450_000_000  # curves of now are drawn at every second answer of four a second
ASKED_NS = 1_000_000_000  # what the store lacks of now was told
LATER_NS = 1_000_000_000  # the windows of a stretch that ends about there
ROOMY_COUNT = 30  # lines of a screen that has room for more than curves
_TOLD_ONLY = "curves hold only what this screen was told, four times a second"


class SteadyLine(TextLines):
    """One line, whatever it says: nothing around it moves when it changes, four times a second."""

    DEFAULT_CSS = "SteadyLine { height: 1; }"

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:  # noqa: ARG002 - textual's signature
        super().update(content, layout=False)


class GpuScreen(SecondaryScreen):
    """A screen of one GPU; the app tells it what to show."""

    CSS = """
    GpuScreen Curves { height: 1fr; }
    GpuScreen #processes { height: auto; }
    GpuScreen.old #now, GpuScreen.old #processes { opacity: 75%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left", "cursor(-1)", "cursor", id="cursor-back", key_display="← →", tooltip="Exact values of an earlier moment"
        ),
        Binding("right", "cursor(1)", "cursor later", id="cursor-on", show=False, tooltip="Exact values of a later moment"),
        Binding("plus,equals_sign", "zoom(-1)", "zoom", id="zoom-in", key_display="+ -", tooltip="A shorter stretch of time"),
        Binding("minus", "zoom(1)", "zoom out", id="zoom-out", show=False, tooltip="A longer stretch of time"),
        Binding("shift+left", "pan(-1)", "pan", id="pan-back", show=False, tooltip="Half a screen earlier"),
        Binding("shift+right", "pan(1)", "pan later", id="pan-on", show=False, tooltip="Half a screen later"),
        Binding("end", "follow", "follow", id="follow", show=False, tooltip="No cursor, the newest at the right edge"),
        Binding("n,tab", "turn(1)", "next", id="gpu-next", key_display="n", tooltip="The next GPU, at the same time"),
        Binding("N,shift+tab", "turn(-1)", "GPU before", id="gpu-before", show=False, tooltip="The GPU before this one"),
    ]

    def __init__(self, uuid: str, past: HistorySource | None) -> None:
        super().__init__()
        self._uuid = uuid
        self._past = past
        self._asker = HistoryFetcher(past)
        self._track = GpuHistory()
        self._stretch = TimeRange()
        self._showing: ScreenContent | None = None
        self._last_ns: int | None = None  # the newest there is to go back to
        self._later: tuple[int, tuple[Shown, ...]] | None = None  # back in time: the windows, as they were known so much later
        self._drawn_ns = 0

    def body(self) -> Iterable[Widget]:
        yield SteadyLine(id="head")
        yield SteadyLine(id="limits")
        yield SteadyLine(id="now")
        yield Curves()
        yield TextLines(id="processes")

    def on_mount(self) -> None:
        if self._showing is not None:
            self.tell(self._showing)

    def on_resize(self) -> None:
        if self._showing is not None:
            self._write(self._showing)
            self.call_after_refresh(self._draw)

    @property
    def uuid(self) -> str:
        """Whose screen it is now."""
        return self._uuid

    def tell(self, content: ScreenContent) -> None:
        """Show this; curves of now follow at half the rate."""
        before, self._showing = self._showing, content
        if before is not None and before.past_ns != content.past_ns:
            self._stretch.follow()
            self._drawn_ns = 0
        if not self.is_mounted:
            return
        gpu = self._gpu()
        if gpu is not None and content.past_ns is None and content.why is None:
            self._track.tell(gpu)
        self._write(content)
        at_ns = content.live.at_ns if content.live is not None else 0
        if content.past_ns is not None or abs(at_ns - self._drawn_ns) >= self._drawn_every_ns():
            self._draw()
        self._wonder()

    def action_cursor(self, step: int) -> None:
        if (sight := self._sight()) is not None:
            self._stretch.move(step, sight)
            self._again()

    def action_pan(self, step: int) -> None:
        if (sight := self._sight()) is not None:
            self._stretch.pan(step, sight)
            self._again()

    def action_zoom(self, step: int) -> None:
        self._stretch.zoom(step, self._sight())
        self._again()

    def action_follow(self) -> None:
        self._stretch.follow()
        self._again()

    def action_turn(self, step: int) -> None:
        """Another GPU, at the same place in time."""
        live = self._showing.live if self._showing is not None else None
        uuids = [each.device.uuid for each in live.gpus] if live is not None else []
        if len(uuids) > 1 or (uuids and self._uuid not in uuids):
            place = (uuids.index(self._uuid) + step) % len(uuids) if self._uuid in uuids else 0
            self._uuid, self._track, self._asker = uuids[place], GpuHistory(), HistoryFetcher(self._past)
            if self._showing is not None:
                self._drawn_ns = 0
                self.tell(self._showing)

    def on_curves_picked(self, picked: Curves.Picked) -> None:
        self._stretch.cursor_ns = picked.at_ns
        self._again()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - textual's signature
        """Keys that would do nothing are not offered."""
        live = self._showing.live if self._showing is not None else None
        return action != "turn" or live is None or len(live.gpus) > 1

    def _gpu(self) -> LiveGpu | None:
        live = self._showing.live if self._showing is not None else None
        return next((gpu for gpu in live.gpus if gpu.device.uuid == self._uuid), None) if live is not None else None

    def _sight(self) -> Viewport | None:
        content = self._showing
        if content is None or content.live is None:
            return None
        width = self.query_one(Curves).size.width or self.size.width
        newest_ns = content.live.at_ns if content.past_ns is None else max(self._last_ns or 0, content.past_ns)
        return Viewport(newest_ns, content.past_ns, max(width - GUTTER_COUNT, 1))

    def _drawn_every_ns(self) -> int:
        """A long stretch moves slowly."""
        sight = self._sight()
        return min(max(DRAWN_NS, self._stretch.dot_ns(sight) // 2 if sight is not None else 0), 2_000_000_000)

    def _again(self) -> None:
        self._draw()
        self._wonder()

    def _write(self, content: ScreenContent) -> None:
        gpu, height = self._gpu(), self.size.height
        self.query_one("#head", TextLines).show([gpu_facts.head(self._uuid, gpu, content, self.columns)])
        if gpu is None or content.live is None:
            return
        limits = self.query_one("#limits", TextLines)
        limits.display = height >= ROOMY_COUNT  # on a small screen the curves have them
        limits.show([gpu_facts.limits(gpu, self.columns)])
        self.query_one("#now", TextLines).show([gpu_facts.now(gpu, content.live, self.columns)])
        most = 2 if height < ROOMY_COUNT else 4 if height < 2 * ROOMY_COUNT else 8
        self.query_one("#processes", TextLines).show(gpu_facts.process_lines(gpu, content.live, self.columns, most))

    def _draw(self) -> None:
        content, gpu, sight = self._showing, self._gpu(), self._sight()
        if content is None or content.live is None or gpu is None or sight is None:
            return
        self._drawn_ns = content.live.at_ns
        why = self._asker.why
        begin_ns, end_ns = self._stretch.edges(sight)
        self.query_one(Curves).show(
            ChartView(
                trace=self._track.trace,
                device=replace(gpu.device, power_limit_w=gpu.said("power_limit_w") or gpu.device.power_limit_w),
                begin_ns=begin_ns,
                end_ns=end_ns,
                zero_ns=sight.past_ns if sight.past_ns is not None else content.live.at_ns,
                at=content.at,
                cursor_ns=self._stretch.cursor(sight),
                windows=self._later[1] if self._later is not None and sight.past_ns is not None else content.live.windows,
                notice=_TOLD_ONLY if self._past is None else f"{why}; {_TOLD_ONLY}" if why is not None else None,
            )
        )

    def _wonder(self) -> None:
        """Ask for what is not known yet."""
        content, sight = self._showing, self._sight()
        if sight is None or content is None or content.live is None or not self._asker.may(content.live.at_ns):
            return
        edges_ns = self._stretch.edges(sight)
        end_ns = min(edges_ns[1], sight.newest_ns)
        following = sight.past_ns is None and self._stretch.follows
        question = self._track.question(edges_ns[0], end_ns, every_ns=ASKED_NS if following else 0)
        if question is not None:
            _: Worker[None] = self.run_worker(partial(self._ask, question, sight.newest_ns, content.live.at_ns))
        elif sight.past_ns is not None and (self._later is None or abs(self._later[0] - end_ns) >= LATER_NS):
            _ = self.run_worker(partial(self._ask_later, end_ns, content.live.at_ns))

    async def _ask(self, question: tuple[int, int], now_ns: int, at_ns: int) -> None:
        track, uuid = self._track, self._uuid
        answer = await self._asker.ask(lambda past: (past.trace(uuid, *question), past.span_ns()), at_ns)
        if answer is not None:
            trace, span_ns = answer
            track.take(trace, *question, now_ns=now_ns)
            self._last_ns = span_ns[1] if span_ns is not None else None
        self._answered()

    async def _ask_later(self, end_ns: int, at_ns: int) -> None:
        """What became of the windows by the end of what is shown: of the moment itself alone, they would be open."""
        live = await self._asker.ask(lambda past: past.live(end_ns), at_ns)
        if live is not None:
            self._later = end_ns, live.windows
        self._answered()

    def _answered(self) -> None:
        if self.is_mounted and self.query(Curves):
            self._draw()
            self._wonder()
