"""The terminal monitor: asks for now a few times a second, in a thread, and hands it, or a moment past, to the topmost screen."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import ClassVar, cast

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import Worker

from annotate.output import report
from gpuwatch import clock
from gpuwatch.errors import DaemonError
from gpuwatch.tui import hangup, preferences, requests
from gpuwatch.tui.data_interfaces import HistorySource, LiveSource, ScreenContent
from gpuwatch.tui.navigation import NavigationApp
from gpuwatch.tui.screens.overview_screen import OverviewScreen
from gpuwatch.tui.screens.screen_base import BaseScreen
from gpuwatch.tui.text import time_text
from gpuwatch.tui.time_travel import END_NS, TimeTravel
from gpuwatch.tui.widgets.banner import Banner
from gpuwatch.tui.widgets.status_line import ScreenState, StatusLine, seen
from gpuwatch.view.live import Live

SILENT_S = 2.0  # a question unanswered for so long: what is shown is no longer now
S = 1_000_000_000


def _step(key: str, id_: str, seconds: int, *, show: bool = False) -> Binding:
    where = "earlier" if seconds < 0 else "later"
    return Binding(key, f"step({seconds})", where, id=id_, show=show, tooltip=f"By {abs(seconds)} s")


class TopApp(NavigationApp):
    """Every GPU and window of one daemon, now and back in time; or of a recording, which has no now."""

    TITLE = "gpuwatch"
    CSS = """
    StatusLine { height: 1; background: $panel; }
    Banner { height: 1; background: $warning; color: auto; text-style: bold; text-align: center; display: none; }
    #gpus { height: auto; max-height: 60%; }
    #windows { height: 1fr; border-top: solid $primary; }
    .old QuietScroll { opacity: 75%; }
    QuietScroll { scrollbar-size-vertical: 1; }
    QuietScroll TextLines { text-wrap: nowrap; text-overflow: clip; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        _step("left", "earlier", -1, show=True),
        _step("right", "later", 1),
        _step("shift+left,left_square_bracket", "earlier-10s", -10),
        _step("shift+right,right_square_bracket", "later-10s", 10),
        Binding("g", "goto", "go to", id="goto", show=False, tooltip="A time of day, so long ago, or a date"),
        Binding("l", "live", "live", id="live", tooltip="Back to now"),
        Binding("space", "pause", "pause", id="pause", tooltip="Hold what is shown"),
        Binding("space", "play", "play", id="play", tooltip="Go on; in the past, as fast as it was"),
        Binding("p", "processes", "processes", id="processes", show=False, tooltip="Who is on the GPUs"),
        Binding("v", "events", "events", id="events", show=False, tooltip="What happened in the last hour"),
        Binding("r", "retry", "start", id="retry", tooltip="Ask again now, and start the user's daemon where none runs"),
        Binding("question_mark", "help", "help", id="help", key_display="?", tooltip="Keys and letters"),
        Binding("q,ctrl+c", "quit", "quit", id="quit", key_display="q", tooltip="Leave; the daemon goes on"),
        Binding("ctrl+z", "suspend_process", "suspend", id="suspend", show=False, tooltip="To the shell; fg comes back"),
    ]

    def __init__(
        self,
        looks: LiveSource | None,
        past: HistorySource | None = None,
        *,
        rate_hz: float | None = None,
        at: Callable[[int], str] = time_text.time_of_day,
        wall_offset_ns: Callable[[], int] | None = clock.wall_offset_ns,
        memory: preferences.PreferencesFile | None = None,
    ) -> None:
        """``looks`` is None for a recording; ``wall_offset_ns`` is None where its times are on no wall's clock."""
        super().__init__(memory or preferences.PreferencesFile(None), rate_hz, past)
        self.animation_level = "none"
        self._looks = looks
        self._at = at
        self._wall_offset_ns = wall_offset_ns
        self._travel = TimeTravel(past, at, ends=looks is None) if past is not None else None
        self._overview = OverviewScreen(past)
        self._live: Live | None = None
        self._why: str | None = None  # the daemon could not be asked
        self._asked_ns: int | None = None  # a question is under way since then
        self._paused = False
        self._playing = False
        self._seen = ScreenState.ASKING
        self._noticing = contextlib.ExitStack()

    def get_default_screen(self) -> Screen[None]:
        return self._overview

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.exit)  # as q: the terminal is put right, and who called us cleans up
        self._noticing.enter_context(hangup.noticed(lambda: loop.call_soon_threadsafe(self.exit)))
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))  # lines at rest too, after Ctrl-Z and fg
        self.draw()
        self.tick()
        self.begin()
        if self._looks is None:
            self.travel_to(END_NS)

    def on_unmount(self) -> None:
        self._noticing.close()
        for each in (self._looks, self._past):
            if each is not None:
                each.close()

    def on_resize(self) -> None:
        self.draw()

    # Now

    def tick(self) -> None:
        if self._playing and self._travel is not None and not self._travel.asking and self._travel.past_ns is not None:
            self.travel_to(self._travel.past_ns + round(S / self._rate_hz))
        if self._asked_ns is not None:
            silent_s = (clock.now_ns() - self._asked_ns) / 1e9
            if silent_s > SILENT_S and self._live is not None:
                self._why = f"the daemon gives no answer since {silent_s:.0f} s"
                self.draw()
        elif not self._paused and self._looks is not None:
            self._asked_ns = clock.now_ns()
            # A function, not yet a coroutine: none is left over when the app ends before its turn.
            _: Worker[None] = self.run_worker(self._ask)

    async def _ask(self) -> None:
        """One question, in a thread: a daemon that hangs, or starts, holds up no key."""
        looks = cast("LiveSource", self._looks)
        try:
            self._live, self._why = await asyncio.to_thread(looks.look), None
            self._overview.note(self._live)
        except DaemonError as error:
            self._why = str(error)
        finally:
            self._asked_ns = None
        self.draw()

    def draw(self) -> None:
        """Show what is known; widgets that would look the same draw nothing."""
        then = self._travel.then if self._travel is not None else None
        past_ns = then.at_ns if then is not None else None
        content = ScreenContent(live=then or self._live, at=self._at, why=self._why, paused=self._paused, past_ns=past_ns)
        self._seen_is(seen(content))
        told = [screen for screen in self.screen_stack if isinstance(screen, BaseScreen)]
        if not told or not told[-1].is_whole:
            return
        top = told[-1]
        top.set_class(self._seen is ScreenState.GONE, "old")
        now_ns = self._live.at_ns if self._live is not None else None
        for state in top.query(StatusLine):
            state.tell(content, self.size.width - 1, now_ns)
        for banner in top.query(Banner):
            if content.live is not None:
                banner.tell(content.live)
        top.tell(content)

    def _seen_is(self, state: ScreenState) -> None:
        if state is not self._seen:
            self._seen = state
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - textual's signature
        """Keys that would do nothing now are not offered."""
        match action:
            case "live":
                return self._seen is ScreenState.PAST and self._looks is not None
            case "play":
                return self._is_held
            case "pause":
                return not self._is_held
            case "retry":
                return self._looks is not None and self._seen in (ScreenState.GONE, ScreenState.ASKING)
            case _:
                return True

    def action_retry(self) -> None:
        if self._looks is not None:
            self._looks.start_again()
            self.tick()

    # Back in time

    def travel_to(self, at_ns: int) -> None:
        """Show that moment, as soon as it was asked for; one that is not over yet is now."""
        if self._travel is None:
            self.notify("there is no store to go back in", severity="warning", timeout=4)
        elif self._live is not None and at_ns >= self._live.at_ns:
            self.action_live()
        elif self._travel.want(at_ns):
            _: Worker[None] = self.run_worker(self._follow)

    async def _follow(self) -> None:
        travel = cast("TimeTravel", self._travel)
        if (said := await travel.follow()) is not None:
            self._playing = False
            self.notify(report.plain(said), severity="warning", timeout=5)
        self.draw()

    def action_step(self, seconds: int) -> None:
        aim_ns = self._travel.aim_ns if self._travel is not None else None
        if aim_ns is None:
            aim_ns = self._live.at_ns if self._live is not None else clock.now_ns()
            if seconds > 0:
                return  # there is nothing after now
        self._playing = False
        self.travel_to(aim_ns + seconds * S)

    async def action_goto(self) -> None:
        from gpuwatch.tui.screens.goto_screen import GoToScreen

        span_ns = self._travel.span_ns if self._travel is not None else None
        now_ns = self._live.at_ns if self._live is not None else span_ns[1] if span_ns else clock.now_ns()
        begin_ns = span_ns[0] if span_ns else now_ns
        offset_ns = self._wall_offset_ns() if self._wall_offset_ns is not None else None

        def read(text: str) -> int:
            return time_text.moment_ns(text, begin_ns=begin_ns, now_ns=now_ns, wall_offset_ns=offset_ns)

        def go(at_ns: int | None) -> None:
            if at_ns is not None:
                self.travel_to(at_ns)

        await self.push_screen(
            GoToScreen(read, time_text.EXPECTED if offset_ns is not None else time_text.EXPECTED_WITHOUT_WALL), go
        )

    def action_live(self) -> None:
        if self._travel is not None and self._looks is not None:
            self._travel.leave()
            self._playing = self._paused = False
            self.draw()

    @property
    def _is_held(self) -> bool:
        """Nothing moves on the screen, because somebody wanted that or went back."""
        in_past = self._travel is not None and self._travel.past_ns is not None
        return not self._playing if in_past else self._paused

    def action_pause(self) -> None:
        self._move(on=False)

    def action_play(self) -> None:
        self._move(on=True)

    def _move(self, *, on: bool) -> None:
        if self._travel is not None and self._travel.past_ns is not None:
            self._playing = on
        else:
            self._paused = not on
        self.draw()
        self.refresh_bindings()

    @on(requests.GoToMoment)
    async def to_moment(self, request: requests.GoToMoment) -> None:
        self._playing = False
        self.travel_to(request.at_ns)
        if request.uuid is not None:
            await self.open_gpu(requests.OpenGpu(request.uuid))
        else:
            await self.action_back()
