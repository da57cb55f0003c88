"""One GPU in detail: its curves over one axis of time, now or back then, and the exact values of any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, cast

from textual.binding import Binding, BindingType
from textual.visual import VisualType
from textual.widget import Widget
from textual.worker import Worker

from annotate.evidence import Trace
from gpuwatch.errors import StoreError
from gpuwatch.live import LiveGpu
from gpuwatch.tui import portrait
from gpuwatch.tui.board import View
from gpuwatch.tui.curves import Curves
from gpuwatch.tui.lines import Lines
from gpuwatch.tui.page import Aside
from gpuwatch.tui.plot import GUTTER_COUNT, Span
from gpuwatch.tui.seams import Past, Showing
from gpuwatch.tui.track import Track

RANGES_S = (30, 120, 600, 3600)
DRAWN_NS = 450_000_000  # curves of now are drawn at every second answer of four a second
ASKED_NS = 1_000_000_000  # what the store lacks of now was told
AGAIN_NS = 5_000_000_000  # after a store refused
ROOMY_COUNT = 30  # lines of a screen that has room for more than curves
_TOLD_ONLY = "curves hold only what this screen was told, four times a second"


class Line(Lines):
    """One line, whatever it says: nothing around it moves when it changes, four times a second."""

    DEFAULT_CSS = "Line { height: 1; }"

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:  # noqa: ARG002 - textual's signature
        super().update(content, layout=False)


class Gpu(Aside):
    """A screen of one GPU; the app tells it what to show."""

    CSS = """
    Gpu Curves { height: 1fr; }
    Gpu #processes { height: auto; }
    Gpu.old #now, Gpu.old #processes { opacity: 75%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left", "cursor(-1)", "cursor", id="cursor-back", key_display="← →", tooltip="Exact values of an earlier moment"
        ),
        Binding("right", "cursor(1)", "cursor later", id="cursor-on", show=False, tooltip="Exact values of a later moment"),
        Binding("plus,equals_sign", "zoom(-1)", "zoom", id="zoom-in", key_display="+ -", tooltip="A shorter stretch of time"),
        Binding("minus", "zoom(1)", "zoom out", id="zoom-out", show=False, tooltip="A longer stretch of time"),
        Binding("shift+left", "pan(-1)", "pan", id="pan-back", key_display="⇧← →", tooltip="Half a screen earlier"),
        Binding("shift+right", "pan(1)", "pan later", id="pan-on", show=False, tooltip="Half a screen later"),
        Binding("end", "follow", "follow", id="follow", key_display="End", tooltip="No cursor, the newest at the right edge"),
        Binding("n,tab", "turn(1)", "next GPU", id="gpu-next", key_display="n", tooltip="The next GPU, at the same time"),
        Binding("N,shift+tab", "turn(-1)", "GPU before", id="gpu-before", show=False, tooltip="The GPU before this one"),
    ]

    def __init__(self, uuid: str, past: Past | None) -> None:
        super().__init__()
        self._uuid = uuid
        self._past = past
        self._track = Track()
        self._showing: Showing | None = None
        self._range_s = 120
        self._end_ns: int | None = None  # somebody panned there
        self._cursor_ns: int | None = None
        self._last_ns: int | None = None  # the newest there is to go back to
        self._asking = False
        self._question = (0, 0, 0)  # begin, end, and when that was asked
        self._why: str | None = None  # the store refused
        self._refused_ns = 0
        self._drawn_ns = 0

    def body(self) -> Iterable[Widget]:
        yield Line(id="head")
        yield Line(id="limits")
        yield Line(id="now")
        yield Curves()
        yield Lines(id="processes")

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

    def tell(self, showing: Showing) -> None:
        """Show this; curves of now follow at half the rate."""
        before, self._showing = self._showing, showing
        if before is not None and before.past_ns != showing.past_ns:
            self._cursor_ns = self._end_ns = None
            self._drawn_ns = 0
        if not self.is_mounted:
            return
        gpu = self._gpu()
        if gpu is not None and showing.past_ns is None and showing.why is None:
            self._track.tell(gpu)
        self._write(showing)
        at_ns = showing.live.at_ns if showing.live is not None else 0
        if showing.past_ns is not None or abs(at_ns - self._drawn_ns) >= self._drawn_every_ns():
            self._draw()
        self._wonder()

    def action_cursor(self, step: int) -> None:
        """To the next cell; past an edge the stretch follows."""
        if (stretch := self._stretch()) is None:
            return
        begin_ns, end_ns = stretch
        cells = Span(begin_ns, end_ns, max(self._width() - GUTTER_COUNT, 1))
        at_ns = self._cursor()
        cell = cells.index(at_ns) if at_ns is not None else None
        moved = (cell if cell is not None else cells.slices_count if step < 0 else -1) + step
        moved_ns = begin_ns + (2 * moved + 1) * (end_ns - begin_ns) // (2 * cells.slices_count)
        if not begin_ns <= moved_ns < end_ns:
            if step > 0 and self._end_ns is None:
                return
            self._end_ns = self._bounded(end_ns + step * (end_ns - begin_ns) // 4)
        self._cursor_ns = moved_ns
        self._again()

    def action_pan(self, step: int) -> None:
        if (stretch := self._stretch()) is not None:
            begin_ns, end_ns = stretch
            self._end_ns = self._bounded(end_ns + step * (end_ns - begin_ns) // 2)
            self._again()

    def action_zoom(self, step: int) -> None:
        """A longer or shorter stretch; the cursor stays where it is on the screen."""
        stretch, cursor_ns = self._stretch(), self._cursor()
        place = min(max(RANGES_S.index(self._range_s) + step, 0), len(RANGES_S) - 1)
        ratio, self._range_s = RANGES_S[place] / self._range_s, RANGES_S[place]
        if stretch is not None and self._cursor_ns is not None and cursor_ns is not None and ratio != 1:
            self._end_ns = self._bounded(cursor_ns + round((stretch[1] - cursor_ns) * ratio))
        self._again()

    def action_follow(self) -> None:
        self._cursor_ns = self._end_ns = None
        self._again()

    def action_turn(self, step: int) -> None:
        """Another GPU, at the same place in time."""
        live = self._showing.live if self._showing is not None else None
        uuids = [each.device.uuid for each in live.gpus] if live is not None else []
        if len(uuids) > 1 or (uuids and self._uuid not in uuids):
            place = (uuids.index(self._uuid) + step) % len(uuids) if self._uuid in uuids else 0
            self._uuid, self._track, self._why = uuids[place], Track(), None
            if self._showing is not None:
                self._drawn_ns = 0
                self.tell(self._showing)

    def on_curves_picked(self, picked: Curves.Picked) -> None:
        self._cursor_ns = picked.at_ns
        self._again()

    def _gpu(self) -> LiveGpu | None:
        live = self._showing.live if self._showing is not None else None
        return next((gpu for gpu in live.gpus if gpu.device.uuid == self._uuid), None) if live is not None else None

    def _width(self) -> int:
        return self.query_one(Curves).size.width or self.size.width

    def _cursor(self) -> int | None:
        """Back in time the moment itself is marked, until somebody moves."""
        if self._cursor_ns is not None or self._showing is None:
            return self._cursor_ns
        return self._showing.past_ns

    def _newest_ns(self) -> int | None:
        showing = self._showing
        if showing is None or showing.live is None:
            return None
        if showing.past_ns is None:
            return showing.live.at_ns
        return max(self._last_ns or 0, showing.past_ns)

    def _bounded(self, end_ns: int) -> int | None:
        """Where to end; None at or beyond the newest, which is followed."""
        newest_ns = self._newest_ns()
        past = self._showing is not None and self._showing.past_ns is not None
        if newest_ns is None or end_ns < newest_ns:
            return end_ns
        return newest_ns if past else None

    def _stretch(self) -> tuple[int, int] | None:
        """What is looked at, from whole dots to whole dots, so that curves do not shimmer as time goes on."""
        showing, newest_ns = self._showing, self._newest_ns()
        if showing is None or newest_ns is None:
            return None
        range_ns = self._range_s * 1_000_000_000
        if self._end_ns is not None:
            end_ns = self._end_ns
        elif showing.past_ns is not None:  # what came after is shown too
            end_ns = min(showing.past_ns + range_ns // 2, newest_ns)
        else:
            end_ns = newest_ns
        dot_ns = max(range_ns // (2 * max(self._width() - GUTTER_COUNT, 1)), 1)
        end_ns = -(-end_ns // dot_ns) * dot_ns
        return end_ns - range_ns, end_ns

    def _drawn_every_ns(self) -> int:
        """A long stretch moves slowly."""
        dot_ns = self._range_s * 1_000_000_000 // (2 * max(self._width() - GUTTER_COUNT, 1))
        return min(max(DRAWN_NS, dot_ns // 2), 2_000_000_000)

    def _again(self) -> None:
        self._draw()
        self._wonder()

    def _write(self, showing: Showing) -> None:
        gpu, height = self._gpu(), self.size.height
        self.query_one("#head", Lines).show([portrait.head(self._uuid, gpu, showing, self.columns)])
        if gpu is None or showing.live is None:
            return
        limits = self.query_one("#limits", Lines)
        limits.display = height >= ROOMY_COUNT  # on a small screen the curves have them
        limits.show([portrait.limits(gpu, self.columns)])
        self.query_one("#now", Lines).show([portrait.now(gpu, showing.live, self.columns)])
        most = 2 if height < ROOMY_COUNT else 4 if height < 2 * ROOMY_COUNT else 8
        self.query_one("#processes", Lines).show(portrait.process_lines(gpu, showing.live, self.columns, most))

    def _draw(self) -> None:
        showing, gpu, stretch = self._showing, self._gpu(), self._stretch()
        if showing is None or showing.live is None or gpu is None or stretch is None:
            return
        self._drawn_ns = showing.live.at_ns
        device = replace(gpu.device, power_limit_w=gpu.said("power_limit_w") or gpu.device.power_limit_w)
        begin_ns, end_ns = stretch
        zero_ns = showing.past_ns if showing.past_ns is not None else showing.live.at_ns
        notice = _TOLD_ONLY if self._past is None else f"{self._why}; {_TOLD_ONLY}" if self._why is not None else None
        self.query_one(Curves).show(
            View(
                trace=self._track.trace,
                device=device,
                begin_ns=begin_ns,
                end_ns=end_ns,
                zero_ns=zero_ns,
                at=showing.at,
                cursor_ns=self._cursor(),
                windows=showing.live.windows,
                notice=notice,
            )
        )

    def _wonder(self) -> None:
        """Ask for what is not known yet: one question at a time, and none soon after a refusal."""
        showing, stretch = self._showing, self._stretch()
        if self._past is None or self._asking or stretch is None or showing is None or showing.live is None:
            return
        now_ns = self._newest_ns() or 0
        if self._why is not None and abs(showing.live.at_ns - self._refused_ns) < AGAIN_NS:
            return
        following = showing.past_ns is None and self._end_ns is None
        end_ns = min(stretch[1], now_ns)
        question = self._track.question(stretch[0], end_ns, every_ns=ASKED_NS if following else 0)
        if question is not None:
            self._asking, self._question = True, (*question, now_ns)
            _: Worker[None] = self.run_worker(self._ask)

    async def _ask(self) -> None:
        past, track, uuid, (begin_ns, end_ns, now_ns) = cast("Past", self._past), self._track, self._uuid, self._question

        def asked() -> tuple[Trace, tuple[int, int] | None]:
            return past.trace(uuid, begin_ns, end_ns), past.span_ns()

        try:
            answer, span_ns = await asyncio.to_thread(asked)
            track.take(answer, begin_ns, end_ns, now_ns=now_ns)
            self._why = None
            self._last_ns = span_ns[1] if span_ns is not None else None
        except StoreError as error:
            self._why, self._refused_ns = str(error), self._showing.live.at_ns if self._showing and self._showing.live else 0
        finally:
            self._asking = False
        if self.is_mounted:
            self._draw()
            self._wonder()
