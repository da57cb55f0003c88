"""A widget of lines that redraws only changed lines, for content that changes a few times a second."""

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gpuwatch.tui.text.words import Piece, Tone


class LineView(Widget):
    """Text in tones, never wrapped; the number of lines is the height, unless a style sets another."""

    # The same colours as STYLES of `text_lines`, as classes, because render_line draws one line at a time.
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"line-view--{tone}" for tone in Tone} | {"line-view--chosen"}
    DEFAULT_CSS = """
    LineView { height: auto; }
    LineView > .line-view--dim { color: $foreground-muted; }
    LineView > .line-view--good { color: $text-success; }
    LineView > .line-view--note { color: $text-secondary; }
    LineView > .line-view--warn { color: $text-warning; text-style: bold; }
    LineView > .line-view--bad { color: $text-error; text-style: bold; }
    LineView > .line-view--chosen { text-style: reverse; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._lines: list[list[Piece]] = []
        self._chosen: int | None = None
        self._styles: dict[str, Style] = {}

    def draw_lines(self, lines: Iterable[list[Piece]], *, chosen: int | None = None) -> None:
        """Show these lines; ``chosen`` is the number of the selected line."""
        before, self._lines = self._lines, list(lines)
        moved = {self._chosen, chosen} if chosen != self._chosen else set()
        self._chosen = chosen
        if len(before) != len(self._lines) and self.styles.height is not None and self.styles.height.is_auto:
            self.refresh(layout=True)
            return
        count = max(len(before), len(self._lines))
        changed = [row for row in range(count) if row in moved or before[row : row + 1] != self._lines[row : row + 1]]
        if changed:
            self.refresh(*(Region(0, row, self.size.width, 1) for row in changed))

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002 - textual's signature
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - textual's signature
        return len(self._lines)

    def notify_style_update(self) -> None:
        """Forget the styles of the previous theme."""
        self._styles.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        # Read once, because textual computes a style again at every call.
        if not self._styles:
            self._styles = {name: self.get_component_rich_style(f"line-view--{name}") for name in (*Tone, "chosen")}
        pieces = self._lines[y] if y < len(self._lines) else []
        if y == self._chosen:
            strip = Strip([Segment("".join(piece.text for piece in pieces), self._styles["chosen"])])
            return strip.adjust_cell_length(self.size.width, self._styles["chosen"])
        strip = Strip([Segment(piece.text, self._styles[piece.tone]) for piece in pieces])
        return strip.adjust_cell_length(self.size.width, self._styles[Tone.PLAIN])

    @property
    def text(self) -> str:
        return "\n".join("".join(piece.text for piece in line).rstrip() for line in self._lines)
