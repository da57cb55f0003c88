"""The keys that move through time: steps, a time of day, pause and play, and return to now."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.worker import Worker

from annotate.output import report
from gpuwatch import clock
from gpuwatch.tui import requests
from gpuwatch.tui.background_queries import LiveFeed
from gpuwatch.tui.data_interfaces import HistorySource
from gpuwatch.tui.navigation import NavigationApp
from gpuwatch.tui.preferences import PreferencesFile
from gpuwatch.tui.text import time_text
from gpuwatch.tui.time_travel import TimeTravel

S = 1_000_000_000


def _step(key: str, id_: str, seconds: int, *, show: bool = False) -> Binding:
    where = "earlier" if seconds < 0 else "later"
    return Binding(key, f"step({seconds})", where, id=id_, show=show, tooltip=f"By {abs(seconds)} s")


class TimeTravelApp(NavigationApp):
    """An app that shows the present, pauses it, or shows a past moment."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _step("left", "earlier", -1, show=True),
        _step("right", "later", 1),
        _step("shift+left,left_square_bracket", "earlier-10s", -10),
        _step("shift+right,right_square_bracket", "later-10s", 10),
        Binding("g", "goto", "go to", id="goto", show=False, tooltip="A time of day, a length of time ago, or a date"),
        Binding("l", "live", "live", id="live", tooltip="Back to now"),
        Binding("space", "hold(True)", "pause", id="pause", tooltip="Hold the screen"),
        Binding("space", "hold(False)", "play", id="play", tooltip="Go on; in the past, play at real speed"),
    ]

    def __init__(
        self,
        feed: LiveFeed,
        past: HistorySource | None,
        *,
        rate_hz: float | None,
        format_time: Callable[[int], str],
        wall_offset_ns: Callable[[], int] | None,
        preferences_file: PreferencesFile,
    ) -> None:
        super().__init__(preferences_file, rate_hz, past)
        self.feed = feed
        self._format_time = format_time
        self._wall_offset_ns = wall_offset_ns
        self._travel = TimeTravel(past, format_time, has_end=feed.source is None) if past is not None else None
        self._is_paused = False
        self._is_playing = False

    @property
    def past_ns(self) -> int | None:
        """Return the displayed past moment, or None for now."""
        return self._travel.past_ns if self._travel is not None else None

    @property
    def is_held(self) -> bool:
        """Return True if the screen is frozen: paused, or in the past and not playing."""
        return not self._is_playing if self.past_ns is not None else self._is_paused

    def play_on(self) -> None:
        """Advance the past by one tick while it plays."""
        if self._is_playing and self._travel is not None and not self._travel.is_querying and self.past_ns is not None:
            self.travel_to(self.past_ns + round(S / self._rate_hz))

    def travel_to(self, at_ns: int) -> None:
        """Show a moment once its query returns; the present instead of a future moment."""
        live = self.feed.live
        if self._travel is None:
            self.notify("the past needs a store, found none", severity="warning", timeout=4)
        elif live is not None and at_ns >= live.at_ns:
            self.action_live()
        elif self._travel.request(at_ns):
            _: Worker[None] = self.run_worker(partial(self._follow, self._travel))

    async def _follow(self, travel: TimeTravel) -> None:
        if (notice := await travel.follow()) is not None:
            self._is_playing = False
            self.notify(report.plain(notice), severity="warning", timeout=5)
        self.draw()

    def action_step(self, seconds: int) -> None:
        aim_ns = self._travel.aim_ns if self._travel is not None else None
        if aim_ns is None:
            aim_ns = self.feed.live.at_ns if self.feed.live is not None else clock.now_ns()
            if seconds > 0:
                return  # nothing is later than now
        self._is_playing = False
        self.travel_to(aim_ns + seconds * S)

    async def action_goto(self) -> None:
        from gpuwatch.tui.screens.goto_screen import GoToScreen

        live, span_ns = self.feed.live, self._travel.span_ns if self._travel is not None else None
        now_ns = live.at_ns if live is not None else span_ns[1] if span_ns else clock.now_ns()
        begin_ns = span_ns[0] if span_ns else now_ns
        offset_ns = self._wall_offset_ns() if self._wall_offset_ns is not None else None

        def read(text: str) -> int:
            return time_text.moment_ns(text, begin_ns=begin_ns, now_ns=now_ns, wall_offset_ns=offset_ns)

        def go(at_ns: int | None) -> None:
            if at_ns is not None:
                self.travel_to(at_ns)

        expected = time_text.EXPECTED if offset_ns is not None else time_text.EXPECTED_WITHOUT_WALL
        await self.push_screen(GoToScreen(read, expected), go)

    def action_live(self) -> None:
        if self._travel is not None and self.feed.source is not None:
            self._travel.leave()
            self._is_playing = self._is_paused = False
            self.draw()

    def action_hold(self, hold: bool) -> None:  # noqa: FBT001 - textual passes it by position
        """Pause or resume the present, or stop or play the past."""
        if self.past_ns is not None:
            self._is_playing = not hold
        else:
            self._is_paused = hold
        self.draw()
        self.refresh_bindings()

    @on(requests.GoToMoment)
    async def go_to_moment(self, request: requests.GoToMoment) -> None:
        self._is_playing = False
        self.travel_to(request.at_ns)
        if request.uuid is not None:
            await self.open_gpu(requests.OpenGpu(request.uuid))
        else:
            await self.action_back()
