"""The curves of one GPU on the screen: drawn anew only where a line changed; a click asks for a moment."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from gpuwatch.tui import board
from gpuwatch.tui.board import View
from gpuwatch.tui.plot import GUTTER_COUNT
from gpuwatch.tui.words import Piece, Tone


class Curves(Widget):
    """What ``board`` lays out, for the size there is."""

    # As STYLES of `lines`; here a style is asked for by its class, a line at a time.
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"curves--{tone}" for tone in ("plain", "dim", "good", "note", "warn", "bad")}
    DEFAULT_CSS = """
    Curves { height: 1fr; }
    Curves > .curves--dim { color: $foreground-muted; }
    Curves > .curves--good { color: $text-success; }
    Curves > .curves--note { color: $text-secondary; }
    Curves > .curves--warn { color: $text-warning; text-style: bold; }
    Curves > .curves--bad { color: $text-error; text-style: bold; }
    """

    class Picked(Message):
        """Somebody pointed at a moment."""

        def __init__(self, at_ns: int) -> None:
            super().__init__()
            self.at_ns = at_ns

    def __init__(self) -> None:
        super().__init__()
        self._view: View | None = None
        self._lines: list[list[Piece]] = []
        self._styles: dict[Tone, Style] = {}

    def show(self, view: View) -> None:
        self._view = view
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_click(self, event: Click) -> None:
        if self._view is not None and event.x >= GUTTER_COUNT:
            cells = self._view.cells(self.size.width)
            self.post_message(self.Picked(self._view.begin_ns + round((event.x - GUTTER_COUNT + 0.5) * cells.slice_ns)))

    def _draw(self) -> None:
        if self._view is None or not self.size.width or not self.size.height:
            return
        before, self._lines = self._lines, board.lines(self._view, self.size.width, self.size.height)
        changed = [
            row
            for row in range(max(len(before), len(self._lines)))
            if row >= len(before) or row >= len(self._lines) or before[row] != self._lines[row]
        ]
        if changed:
            self.refresh(*(Region(0, row, self.size.width, 1) for row in changed))

    def notify_style_update(self) -> None:
        """Another theme."""
        self._styles.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        # Asked for once: textual works a style out anew at every question.
        if not self._styles:
            self._styles = {tone: self.get_component_rich_style(f"curves--{tone}") for tone in Tone}
        pieces = self._lines[y] if y < len(self._lines) else []
        strip = Strip([Segment(piece.text, self._styles[piece.tone]) for piece in pieces])
        return strip.adjust_cell_length(self.size.width, self._styles[Tone.PLAIN])

    @property
    def text(self) -> str:
        """What is shown, as words."""
        return "\n".join("".join(piece.text for piece in line).rstrip() for line in self._lines)
