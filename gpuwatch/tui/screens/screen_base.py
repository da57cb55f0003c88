"""The common parts of the screens: the status line at the top, the keys at the bottom, and the body between them."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer

from gpuwatch.tui.data_interfaces import ScreenContent
from gpuwatch.tui.requests import Redraw
from gpuwatch.tui.widgets.row_list import RowList, moved
from gpuwatch.tui.widgets.status_line import Banner, Notice, StatusLine


class KeyLine(Footer):
    """A footer that gives each new key the footer's ``compact``; otherwise a key starts compact and is styled three times."""

    def compose(self) -> ComposeResult:
        for key in super().compose():
            compact = getattr(type(key), "compact", None)
            if compact is not None:
                key.set_reactive(compact, self.compact)
            yield key


class BaseScreen(Screen[None]):
    """A screen that gets its content from the app."""

    def compose(self) -> ComposeResult:
        yield StatusLine()
        yield Banner()
        yield Notice()
        yield from self.body()
        yield KeyLine(show_command_palette=False)

    @abstractmethod
    def body(self) -> Iterable[Widget]: ...

    @abstractmethod
    def show_content(self, content: ScreenContent) -> None: ...

    @property
    def is_whole(self) -> bool:
        """Return True once the screen's widgets exist; scrolling containers get their content last."""
        return bool(self.query(StatusLine)) and all(quiet.children for quiet in self.query(QuietScroll))

    @property
    def columns(self) -> int:
        """Return the width of a line, without the scroll bar's column."""
        return self.app.size.width - 1

    def on_screen_resume(self) -> None:
        self.post_message(Redraw())


class SecondaryScreen(BaseScreen):
    """A screen over the first one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.back", "back", id="back", key_display="Esc", tooltip="Return to the previous screen"),
    ]


class ChoosingScreen(BaseScreen):
    """A screen of rows: the user can select one and open it."""

    _chosen: str | None = None

    def body(self) -> Iterable[Widget]:
        yield QuietScroll(RowList())

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the selectable rows, in the order shown."""

    @abstractmethod
    def draw(self) -> None: ...

    @abstractmethod
    def action_open(self) -> None: ...

    def action_choose(self, by: int) -> None:
        self.choose(moved(self.names(), self._chosen, by))

    @on(RowList.Chosen)
    def point(self, event: RowList.Chosen) -> None:
        self.choose(event.name)
        if event.opened:
            self.action_open()

    def choose(self, name: str | None) -> None:
        """Select the row of that name, and scroll to it."""
        self._chosen = name
        self.draw()
        for rows in self.query(RowList):
            if (place := rows.place(name)) is not None and isinstance(rows.parent, VerticalScroll):
                rows.parent.scroll_to_region(Region(0, place, 1, 1), animate=False)


class QuietScroll(VerticalScroll, can_focus=False):
    """A container that scrolls with the mouse and to the selected line; the screen receives the keys."""
