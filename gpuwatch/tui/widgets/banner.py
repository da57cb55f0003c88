"""The line that marks simulated and replayed data, on every screen."""

from __future__ import annotations

from annotate.output import report
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.text_lines import TextLines
from gpuwatch.view.live import Live


class Banner(TextLines):
    """A line visible while the source is not a driver: simulated GPUs, or a recording."""

    def show_live(self, live: Live) -> None:
        replayed = live.source.startswith("replay:")
        self.display = live.simulated or replayed
        word, why = ("REPLAY", "a recording, not now") if replayed else ("SIMULATED", "these GPUs do not exist")
        self.show([[Piece(f" {word}  {why}: {report.plain(live.source.removeprefix('replay:'))}  {word} ", Tone.PLAIN)]])
