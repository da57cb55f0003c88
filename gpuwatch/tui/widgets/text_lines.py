"""A widget of lines in tones, wrapped if necessary, and redrawn only after a change."""

from collections.abc import Iterable, Mapping

from textual.content import Content
from textual.widgets import Static

from gpuwatch.tui.text.words import Piece, Tone

STYLES: Mapping[Tone, str] = {
    Tone.PLAIN: "",
    Tone.DIM: "$foreground-muted",
    Tone.GOOD: "$text-success",
    Tone.NOTE: "$text-secondary",
    Tone.WARN: "bold $text-warning",
    Tone.BAD: "bold $text-error",
}


class TextLines(Static):
    """Text in tones, redrawn only after a change, so that an idle screen costs nothing.

    An update of a widget with a fixed height computes no layout.
    """

    _shown: tuple[tuple[Piece, ...], ...] = ()

    def show(self, lines: Iterable[Iterable[Piece]]) -> None:
        wanted = tuple(tuple(line) for line in lines)
        if wanted != self._shown:
            self._shown = wanted
            is_as_high_as_its_text = self.styles.height is None or self.styles.height.is_auto
            self.update(Content("\n").join(map(_line, wanted)), layout=is_as_high_as_its_text)

    @property
    def text(self) -> str:
        return "\n".join("".join(piece.text for piece in line) for line in self._shown)


def _line(pieces: tuple[Piece, ...]) -> Content:
    # Content, never markup: labels and process names come from outside.
    return Content.assemble(*((piece.text, STYLES[piece.tone]) if STYLES[piece.tone] else piece.text for piece in pieces))
