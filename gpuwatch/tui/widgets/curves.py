"""The curves of one GPU on the screen, redrawn only if a line changed; a click selects a moment."""

from dataclasses import dataclass

from textual.events import Click
from textual.message import Message

from gpuwatch.tui.text import gpu_chart
from gpuwatch.tui.text.gpu_chart import ChartView
from gpuwatch.tui.text.plot import GUTTER_COUNT
from gpuwatch.tui.widgets.line_view import LineView


class Curves(LineView):
    """The lines of ``gpu_chart``, for the current size."""

    DEFAULT_CSS = "Curves { height: 1fr; }"

    @dataclass
    class Picked(Message):
        """A click on a moment."""

        at_ns: int

    def __init__(self) -> None:
        super().__init__()
        self._view: ChartView | None = None

    def show(self, view: ChartView) -> None:
        self._view = view
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_click(self, event: Click) -> None:
        if self._view is not None and event.x >= GUTTER_COUNT:
            cells = self._view.cells(self.size.width)
            self.post_message(self.Picked(self._view.begin_ns + round((event.x - GUTTER_COUNT + 0.5) * cells.slice_ns)))

    def _draw(self) -> None:
        if self._view is not None and self.size.width and self.size.height:
            self.draw_lines(gpu_chart.lines(self._view, self.size.width, self.size.height))
