"""The terminal monitor: asks for now a few times a second, in a thread, and hands it to its widgets."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import ClassVar, Protocol

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer
from textual.worker import Worker

from gpuwatch import clock
from gpuwatch.errors import DaemonError
from gpuwatch.live import Live
from gpuwatch.tui.banner import Banner
from gpuwatch.tui.gpus import Gpus
from gpuwatch.tui.help import Help
from gpuwatch.tui.state import Seen, State
from gpuwatch.tui.windows import Windows

RATE_HZ = 4.0
SILENT_S = 2.0  # a question unanswered for so long: what is shown is no longer now


class Looks(Protocol):
    """Where this screen looks: ``live.Looker``, or what a test shows it."""

    def look(self) -> Live:
        """Raises DaemonError; the next call tries anew."""
        ...

    def start_again(self) -> None: ...

    def close(self) -> None: ...


def time_of_day(at_ns: int) -> str:
    """When that was by the clock on the wall, here."""
    wall_s = clock.wall_s() - (clock.now_ns() - at_ns) / 1e9
    return datetime.fromtimestamp(wall_s, tz=UTC).astimezone().strftime("%H:%M:%S")


class Top(App[None]):
    """Every GPU and window of one daemon, now."""

    TITLE = "gpuwatch"
    CSS = """
    State { height: 1; background: $panel; }
    Banner { height: 1; background: $warning; color: $background; text-style: bold; text-align: center; display: none; }
    #gpus { height: auto; max-height: 60%; }
    #windows { height: 1fr; border-top: solid $primary; }
    .old Gpus, .old Windows { opacity: 60%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "pause", tooltip="Hold what is shown; recording goes on"),
        Binding("r", "retry", "start daemon", tooltip="Ask again now, and start the user's daemon where none runs"),
        Binding("t", "light", "light/dark", tooltip="Light or dark; the palette has every theme"),
        Binding("question_mark", "help", "help", key_display="?", tooltip="Keys and letters"),
        Binding("q", "quit", "quit", tooltip="Leave; the daemon goes on"),
    ]

    def __init__(self, looks: Looks, *, rate_hz: float = RATE_HZ, at: Callable[[int], str] = time_of_day) -> None:
        super().__init__()
        self.animation_level = "none"
        self._looks = looks
        self._rate_hz = rate_hz
        self._at = at
        self._live: Live | None = None
        self._why: str | None = None  # the daemon could not be asked
        self._asked_ns: int | None = None  # a question is under way since then
        self._paused = False

    def compose(self) -> ComposeResult:
        yield State()
        yield Banner()
        with VerticalScroll(id="gpus"):
            yield Gpus()
        with VerticalScroll(id="windows"):
            yield Windows()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):  # as q: the terminal is put right, and who called us cleans up
            asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self.draw()
        self._tick()
        self.set_interval(1 / self._rate_hz, self._tick)

    def on_unmount(self) -> None:
        self._looks.close()

    def on_resize(self) -> None:
        self.draw()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette holds every action of ours too."""
        yield from super().get_system_commands(screen)
        for binding in Binding.make_bindings(self.BINDINGS):
            if binding.action != "quit":
                yield SystemCommand(
                    binding.description.capitalize(), binding.tooltip, getattr(self, f"action_{binding.action}")
                )

    def action_pause(self) -> None:
        self._paused = not self._paused
        self.draw()

    def action_retry(self) -> None:
        self._looks.start_again()
        self._tick()

    def action_light(self) -> None:
        self.theme = "textual-dark" if not self.current_theme.dark else "textual-light"

    def action_help(self) -> None:
        self.push_screen(Help())

    def _tick(self) -> None:
        if self._asked_ns is not None:
            silent_s = (clock.now_ns() - self._asked_ns) / 1e9
            if silent_s > SILENT_S and self._live is not None:
                self._why = f"the daemon gives no answer since {silent_s:.0f} s"
                self.draw()
        elif not self._paused:
            self._asked_ns = clock.now_ns()
            # A function, not yet a coroutine: none is left over when the app ends before its turn.
            _: Worker[None] = self.run_worker(self._ask)

    async def _ask(self) -> None:
        """One question, in a thread: a daemon that hangs, or starts, holds up no key."""
        try:
            self._live, self._why = await asyncio.to_thread(self._looks.look), None
        except DaemonError as error:
            self._why = str(error)
        finally:
            self._asked_ns = None
        self.draw()

    def draw(self) -> None:
        """Show what is known; widgets that would look the same draw nothing."""
        screen = self.screen_stack[0]
        if not screen.query(State):
            return  # not composed yet
        width = self.size.width - 1
        state = screen.query_one(State).tell(self._live, self._why, self._at, paused=self._paused, width=width)
        screen.set_class(state is Seen.GONE, "old")
        if self._live is not None:
            screen.query_one(Banner).tell(self._live)
            screen.query_one(Gpus).tell(self._live, width)
            screen.query_one(Windows).tell(self._live, width)
