"""A widget of lines: pieces of text with a tone, drawn only when they changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual.content import Content
from textual.widgets import Static

from gpuwatch.tui.words import Piece, Tone

STYLES: Mapping[Tone, str] = {
    Tone.PLAIN: "",
    Tone.DIM: "$foreground-muted",
    Tone.GOOD: "$text-success",
    Tone.NOTE: "$text-secondary",
    Tone.WARN: "bold $text-warning",
    Tone.BAD: "bold $text-error",
}
CHOSEN = "reverse"  # which a screen without colours has too


class Lines(Static):
    """Text in tones.  What was drawn last is kept, so that a screen at rest costs nothing."""

    _shown: tuple[tuple[tuple[Piece, ...], ...], int | None] = ((), None)

    def show(self, lines: Iterable[Iterable[Piece]], *, chosen: int | None = None) -> None:
        """``chosen`` is the number of the line somebody stands on."""
        wanted = tuple(tuple(line) for line in lines), chosen
        if wanted != self._shown:
            self._shown = wanted
            width = self.size.width
            self.update(
                Content("\n").join(
                    _standing(line, width) if number == chosen else _line(line) for number, line in enumerate(wanted[0])
                )
            )


def _standing(pieces: tuple[Piece, ...], width: int) -> Content:
    """The line somebody stands on, to the screen's edge."""
    return Content.styled("".join(piece.text for piece in pieces).ljust(width), CHOSEN)


def _line(pieces: tuple[Piece, ...]) -> Content:
    # Content, never markup: labels and names of processes come from outside.
    return Content.assemble(*((piece.text, STYLES[piece.tone]) if STYLES[piece.tone] else piece.text for piece in pieces))
