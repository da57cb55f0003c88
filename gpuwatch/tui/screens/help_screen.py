"""The help: keys from the bindings of the screen below, and letters from the tables of `words`."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from gpuwatch.tui.text import words
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.text_lines import TextLines

_KEY_COLUMNS = 12


class HelpScreen(ModalScreen[None]):
    """A modal help page; Esc, q, ? or Enter closes the page."""

    CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 78; max-width: 100%; height: auto; max-height: 100%; border: round $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss", "close", key_display="Esc")]

    def __init__(self, bindings: Sequence[ActiveBinding], kept_at: Path | None, actions: Collection[str]) -> None:
        super().__init__()
        self._listed_bindings = bindings
        self._kept_at = kept_at
        self._actions = actions

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield TextLines()

    def on_mount(self) -> None:
        lines = [
            [Piece("Keys")],
            *self._keys(),
            [Piece("Clock event reasons")],
            *_legend([*words.CHIPS.values(), words.UNKNOWN]),
            [Piece("Verdicts")],
            *_legend(list(words.STATUSES.values())),
            [Piece("Marks")],
            *([Piece(f"  {mark:<8}"), Piece(means, Tone.DIM)] for mark, means in words.MARKS.items()),
        ]
        if self._kept_at is not None:
            lines += [[Piece("Stored: theme, rate, order; and your own keys, as "), Piece('"keys": {"pause": "f5,space"}')]]
            lines += [[Piece(f"  {self._kept_at}")], [Piece(f"  {', '.join(sorted(self._actions))}", Tone.DIM)]]
        self.query_one(TextLines).show(lines)

    def _keys(self) -> list[list[Piece]]:
        """Return one line per action; actions with equal texts share a line."""
        said: dict[str, tuple[list[str], str]] = {}
        for active in self._listed_bindings:
            binding = active.binding
            if binding.id is None or not binding.description:  # textual's own bindings
                continue
            keys, _ = said.setdefault(binding.description + binding.tooltip, ([], _said(binding)))
            key = self.app.get_key_display(binding)
            if key not in keys:
                keys.append(key)
        every = [*said.values(), (["^p"], "palette: every action and theme, any rule and reason")]
        return [[Piece(f"  {_together(keys):<{_KEY_COLUMNS}}"), Piece(what, Tone.DIM)] for keys, what in every]


def _said(binding: Binding) -> str:
    if not binding.tooltip:
        return binding.description
    first, rest = binding.tooltip[0], binding.tooltip[1:]
    return f"{binding.description}: {first.lower() if rest[:1].islower() or rest[:1] == ' ' else first}{rest}"


def _together(keys: Sequence[str]) -> str:
    return " ".join(keys) if len(keys) <= 4 else f"{keys[0]} … {keys[-1]}"


def _legend(chips: list[words.Chip]) -> list[list[Piece]]:
    cells = [[Piece(f"  {chip.letter} ", chip.tone), Piece(f"{chip.name:<14}", Tone.DIM)] for chip in chips]
    return [[piece for cell in cells[at : at + 3] for piece in cell] for at in range(0, len(cells), 3)]
