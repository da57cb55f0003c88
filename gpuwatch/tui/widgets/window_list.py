"""The list of open and recent windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwatch.tui.text import window_table
from gpuwatch.tui.widgets.row_list import RowList
from gpuwatch.view.live import Live


class WindowList(RowList):
    """Each window's verdict, or that it is still open, and the rules that found something."""

    def show_live(self, live: Live, width: int, so_far: Mapping[str, Sequence[str]], chosen: str | None) -> None:
        self.show_rows(window_table.window_lines(live, width, so_far), [None, *(window.run for window in live.windows)], chosen)
