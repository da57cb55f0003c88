"""The terminal monitor: polls the daemon and hands its answer, or a past moment, to the topmost screen."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import Worker

from gpuwatch import clock
from gpuwatch.tui import hangup, preferences
from gpuwatch.tui.background_queries import LiveFeed
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.screens.overview_screen import OverviewScreen
from gpuwatch.tui.screens.screen_base import BaseScreen
from gpuwatch.tui.text import time_text
from gpuwatch.tui.time_travel import END_NS
from gpuwatch.tui.time_travel_app import TimeTravelApp
from gpuwatch.tui.widgets.status_line import (
    LEAST_COLUMNS,
    LEAST_LINES,
    STARTABLE,
    Banner,
    Notice,
    ScreenState,
    StatusLine,
    screen_state,
)
from gpuwatch.view.live import Looker


class TopApp(TimeTravelApp):
    """The monitor of every GPU and window of one daemon, now and in the past, or of one recording."""

    TITLE = "gpuwatch"
    CSS = """
    StatusLine { height: 1; background: $panel; }
    Banner { height: 1; background: $warning; color: auto; text-style: bold; text-align: center; display: none; }
    Notice { height: auto; padding: 0 1; background: $panel; display: none; }
    #gpus { height: auto; max-height: 60%; }
    #windows { height: 1fr; border-top: solid $primary; }
    .old QuietScroll { opacity: 75%; }
    QuietScroll { scrollbar-size-vertical: 1; }
    QuietScroll TextLines { text-wrap: nowrap; text-overflow: clip; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "processes", "processes", id="processes", show=False, tooltip="Every process on every GPU"),
        Binding("v", "events", "events", id="events", show=False, tooltip="Driver reports and windows of the last hour"),
        Binding("r", "retry", "start", id="retry", tooltip="Start a daemon if none runs"),
        Binding("question_mark", "help", "help", id="help", key_display="?", tooltip="Keys and letters"),
        Binding("q,ctrl+c", "quit", "quit", id="quit", key_display="q", tooltip="Leave the monitor; the daemon keeps running"),
        Binding("ctrl+z", "suspend_process", "suspend", id="suspend", show=False, tooltip="Suspend to the shell; fg returns"),
    ]

    def __init__(
        self,
        live_source: Looker | None,
        past: HistorySource | None = None,
        *,
        rate_hz: float | None = None,
        format_time: Callable[[int], str] = time_text.time_of_day,
        wall_offset_ns: Callable[[], int] | None = clock.wall_offset_ns,
        preferences_file: preferences.PreferencesFile | None = None,
    ) -> None:
        """Set up the app; ``live_source`` is None for a recording, ``wall_offset_ns`` without a wall clock."""
        super().__init__(
            LiveFeed(live_source),
            past,
            rate_hz=rate_hz,
            format_time=format_time,
            wall_offset_ns=wall_offset_ns,
            preferences_file=preferences_file or preferences.PreferencesFile(None),
        )
        self.animation_level = "none"
        self._overview = OverviewScreen(past)
        self._state = ScreenState.ASKING
        self._exit_stack = contextlib.ExitStack()

    def get_default_screen(self) -> Screen[None]:
        return self._overview

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.exit)  # same as the key q: restores the terminal, and the caller cleans up
        self._exit_stack.enter_context(hangup.exit_on_hangup(lambda: loop.call_soon_threadsafe(self.exit)))
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))  # redraw an idle screen after Ctrl-Z and fg
        self.draw()
        self.tick()
        self.apply_preferences()
        if self.feed.source is None:
            self.travel_to(END_NS)

    def on_unmount(self) -> None:
        self._exit_stack.close()
        self.feed.close()
        if self._past is not None:
            self._past.close()

    def on_resize(self) -> None:
        self.draw()

    def tick(self) -> None:
        self.play_on()
        if self.feed.check_silence():
            self.draw()
        elif not self._is_paused and self.feed.begin():
            # Pass the function, not a coroutine: an early exit would leave the coroutine unawaited.
            _: Worker[None] = self.run_worker(self._poll)

    async def _poll(self) -> None:
        if (live := await self.feed.poll()) is not None:
            self._overview.add_live(live)
        self.draw()

    def draw(self) -> None:
        """Hand the topmost screen its content; unchanged widgets draw nothing."""
        live, problem, then = self.feed.live, self.feed.problem, self._travel.then if self._travel is not None else None
        if (shown := then or live) is not None:
            self.content = ScreenContent(
                live=shown,
                format_time=self._format_time,
                problem=problem,
                is_paused=self._is_paused,
                past_ns=self.past_ns,
            )
        if (state := screen_state(self.content, problem, self.feed.code)) is not self._state:
            self._state = state
            self.refresh_bindings()
        screens = [screen for screen in self.screen_stack if isinstance(screen, BaseScreen)]
        if not screens or not screens[-1].is_whole:
            return
        top = screens[-1]
        top.set_class(state in (ScreenState.GONE, ScreenState.REFUSED), "old")
        for line in top.query(StatusLine):
            now_ns, is_small = (
                live.at_ns if live is not None else None,
                self.size.width < LEAST_COLUMNS or self.size.height < LEAST_LINES,
            )
            line.show_content(self.content, state, self.size.width - 1, now_ns, is_small=is_small)
        for notice in top.query(Notice):
            notice.show_problem(state, problem, self.feed.code)
        if self.content is not None:
            for banner in top.query(Banner):
                banner.show_live(self.content.live)
            top.show_content(self.content)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer live, hold, open and retry only if they have an effect now."""
        match action:
            case "live":
                return self._state is ScreenState.PAST and self.feed.source is not None
            case "hold":
                return self.content is not None and parameters[0] is not self.is_held
            case "retry":
                return self.feed.source is not None and self._state is ScreenState.GONE and self.feed.code in STARTABLE
            case _:
                return True

    def action_retry(self) -> None:
        if self.feed.source is not None:
            self.feed.source.start_again()
            self.tick()
