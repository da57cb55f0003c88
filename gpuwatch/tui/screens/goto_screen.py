"""The input of a moment to go to."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from annotate.output import report
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.text_lines import TextLines


class GoToScreen(ModalScreen[int | None]):
    """A dialog that returns a moment, or None after Esc; invalid input shows the expected form and keeps the dialog open."""

    CSS = """
    GoToScreen { align: center middle; }
    GoToScreen > Vertical { width: 72; max-width: 100%; height: auto; border: round $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "close", key_display="Esc")]

    def __init__(self, read: Callable[[str], int], expected: str) -> None:
        super().__init__()
        self._read = read
        self._expected = expected

    def compose(self) -> ComposeResult:
        with Vertical():
            yield TextLines()
            yield Input(placeholder=self._expected, select_on_focus=False)

    def on_mount(self) -> None:
        self.query_one(TextLines).show([[Piece("go to: "), Piece(self._expected, Tone.DIM)]])

    @on(Input.Submitted)
    def read(self, event: Input.Submitted) -> None:
        try:
            at_ns = self._read(event.value)
        except ValueError as error:
            self.query_one(TextLines).show([[Piece(report.plain(str(error)), Tone.BAD)]])
            return
        self.dismiss(at_ns)
