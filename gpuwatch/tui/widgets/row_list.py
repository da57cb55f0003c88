"""A list of lines with at most one selected: the screen handles keys, and this widget handles clicks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.events import Click
from textual.message import Message

from gpuwatch.tui.text.words import Piece
from gpuwatch.tui.widgets.line_view import LineView


class RowList(LineView):
    """Lines with names; unnamed lines, such as a heading, cannot be selected."""

    _names: tuple[str | None, ...] = ()

    @dataclass
    class Chosen(Message):
        """A click on a line; ``opened`` is True for a double click."""

        name: str
        opened: bool

    def show_rows(self, rows: Iterable[tuple[str | None, list[Piece]]], chosen: str | None) -> None:
        self._names, lines = zip(*rows, strict=True)
        self.draw_lines(lines, chosen=self.place(chosen))

    def place(self, name: str | None) -> int | None:
        """Return the number of the first line of that name; None without such a line."""
        return self._names.index(name) if name is not None and name in self._names else None

    def on_click(self, event: Click) -> None:
        at = event.get_content_offset(self)
        if at is not None and at.y < len(self._names) and (name := self._names[at.y]) is not None:
            self.post_message(self.Chosen(name, opened=event.chain >= 2))


def moved(names: Sequence[str], chosen: str | None, by: int) -> str | None:
    """Return the name ``by`` lines further, within the list; without a selection the first, or backwards the last name.

    Return None without names.
    """
    if not names:
        return None
    if chosen not in names:
        return names[0] if by > 0 else names[-1]
    return names[min(max(names.index(chosen) + by, 0), len(names) - 1)]
