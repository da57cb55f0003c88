"""The time range on the screen, and the marked moment in it."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuwatch.tui.text.plot import Span

RANGES_S = (30, 120, 600, 3600)
S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Viewport:
    """The newest moment, the user's past moment if any, the room in cells, and the whole range of a recording.

    ``first_ns`` returns the first reading since a moment.
    """

    newest_ns: int
    past_ns: int | None
    cells_count: int
    whole_ns: tuple[int, int] | None = None
    first_ns: Callable[[int], int] = int


class TimeRange:
    """A range that follows the newest moment until the user moves it."""

    def __init__(self) -> None:
        self.range_s = 120
        self.end_ns: int | None = None  # set when the user pans
        self.cursor_ns: int | None = None  # set when the user moves the cursor

    @property
    def range_ns(self) -> int:
        return self.range_s * S

    def cursor(self, viewport: Viewport) -> int | None:
        """Return the cursor's moment, else the displayed past moment, or None for a live range without a cursor."""
        return self.cursor_ns if self.cursor_ns is not None else viewport.past_ns

    def edges(self, viewport: Viewport) -> tuple[int, int]:
        """Return start and end, the end on a whole dot: live curves do not shimmer.

        Readings shorter than the range fill the curves, until the user moves the range.
        """
        if viewport.whole_ns is not None and 0 < viewport.whole_ns[1] - viewport.whole_ns[0] <= self.range_ns:
            return viewport.whole_ns
        if self.end_ns is not None:
            end_ns = self.end_ns
        elif viewport.past_ns is not None:  # include later data too
            end_ns = min(viewport.past_ns + self.range_ns // 2, viewport.newest_ns)
        else:
            end_ns = viewport.newest_ns
        length_ns = self.range_ns
        if self.end_ns is None:
            length_ns = min(length_ns, max(end_ns - viewport.first_ns(end_ns - length_ns), S))
        dot_ns = max(length_ns // (2 * viewport.cells_count), 1)
        end_ns = -(-end_ns // dot_ns) * dot_ns
        return end_ns - length_ns, end_ns

    def dot_ns(self, viewport: Viewport) -> int:
        return max(self.range_ns // (2 * viewport.cells_count), 1)

    def move(self, step: int, viewport: Viewport) -> None:
        """Move the cursor by ``step`` cells; beyond an edge the range moves too, except where nothing was read."""
        begin_ns, end_ns = self.edges(viewport)
        cells = Span(begin_ns, end_ns, viewport.cells_count)
        at_ns = self.cursor(viewport)
        cell = cells.index(at_ns) if at_ns is not None else None
        moved = (cell if cell is not None else cells.slices_count if step < 0 else -1) + step
        moved_ns = begin_ns + (2 * moved + 1) * (end_ns - begin_ns) // (2 * cells.slices_count)
        if not begin_ns <= moved_ns < end_ns:
            if self.end_ns is None and (step > 0 or end_ns - begin_ns < self.range_ns):
                return
            self.end_ns = _bounded(end_ns + step * (end_ns - begin_ns) // 4, viewport)
        self.cursor_ns = moved_ns

    def pan(self, step: int, viewport: Viewport) -> None:
        begin_ns, end_ns = self.edges(viewport)
        self.end_ns = _bounded(end_ns + step * (end_ns - begin_ns) // 2, viewport)

    def zoom(self, step: int, viewport: Viewport) -> None:
        """Show a longer or shorter range; the cursor keeps its place on the screen."""
        _, end_ns = self.edges(viewport)
        place = min(max(RANGES_S.index(self.range_s) + step, 0), len(RANGES_S) - 1)
        ratio, self.range_s = RANGES_S[place] / self.range_s, RANGES_S[place]
        if self.cursor_ns is not None and ratio != 1:
            self.end_ns = _bounded(self.cursor_ns + round((end_ns - self.cursor_ns) * ratio), viewport)

    def follow(self) -> None:
        self.cursor_ns = self.end_ns = None


def _bounded(end_ns: int, viewport: Viewport) -> int | None:
    """Return the end, at most the newest moment, or None for that moment of a live range, which then follows."""
    if end_ns < viewport.newest_ns:
        return end_ns
    return viewport.newest_ns if viewport.past_ns is not None else None
