"""What the keys do and the letters mean: keys from the bindings themselves, letters from the table that draws them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from gpuwatch.tui import words
from gpuwatch.tui.lines import Lines
from gpuwatch.tui.words import Piece, Tone


class Help(ModalScreen[None]):
    """Covers the screen until any of its keys."""

    CSS = """
    Help { align: center middle; }
    Help > VerticalScroll { width: 72; max-width: 100%; height: auto; max-height: 100%; border: round $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss", "close", key_display="Esc")]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Lines()

    def on_mount(self) -> None:
        every = [binding for binding in Binding.make_bindings(self.app.BINDINGS) if binding.description]
        keys = [[Piece(f"  {self.app.get_key_display(each):<10}"), Piece(each.description, Tone.DIM)] for each in every]
        lines = [[Piece("Keys")], *keys, [Piece("Clock event reasons")], *_legend([*words.CHIPS.values(), words.UNKNOWN])]
        lines += [[Piece("Verdicts")], *_legend(list(words.STATUSES.values()))]
        lines += [[Piece("Marks")], *([Piece(f"  {mark:<6}"), Piece(means, Tone.DIM)] for mark, means in words.MARKS.items())]
        self.query_one(Lines).show(lines)


def _legend(chips: list[words.Chip]) -> list[list[Piece]]:
    """Three to a line."""
    cells = [[Piece(f"  {chip.letter} ", chip.tone), Piece(f"{chip.name:<14}", Tone.DIM)] for chip in chips]
    return [[piece for cell in cells[at : at + 3] for piece in cell] for at in range(0, len(cells), 3)]
