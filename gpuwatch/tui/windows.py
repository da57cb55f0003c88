"""Open and recent windows."""

from __future__ import annotations

from gpuwatch.live import Live
from gpuwatch.tui import words
from gpuwatch.tui.lines import Lines


class Windows(Lines):
    """Each window's verdict, or that it is still open, and the rules that found something."""

    def tell(self, live: Live, width: int) -> None:
        self.show(words.window_lines(live, width))
