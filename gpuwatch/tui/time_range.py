"""Which stretch of time somebody looks at, and the moment in it that is marked."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.tui.text.plot import Span

RANGES_S = (30, 120, 600, 3600)
S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Viewport:
    """From where: the newest there is, the moment somebody went back to if they did, and the cells there is room for."""

    newest_ns: int
    past_ns: int | None
    cells_count: int


class TimeRange:
    """Follows the newest, until somebody moves."""

    def __init__(self) -> None:
        self.range_s = 120
        self.end_ns: int | None = None  # somebody panned there
        self.cursor_ns: int | None = None  # somebody put it there

    @property
    def range_ns(self) -> int:
        return self.range_s * S

    @property
    def follows(self) -> bool:
        return self.end_ns is None

    def cursor(self, sight: Viewport) -> int | None:
        """Back in time the moment itself is marked, until somebody moves."""
        return self.cursor_ns if self.cursor_ns is not None else sight.past_ns

    def edges(self, sight: Viewport) -> tuple[int, int]:
        """Begin and end, from whole dots to whole dots, so that curves do not shimmer as time goes on."""
        if self.end_ns is not None:
            end_ns = self.end_ns
        elif sight.past_ns is not None:  # what came after is shown too
            end_ns = min(sight.past_ns + self.range_ns // 2, sight.newest_ns)
        else:
            end_ns = sight.newest_ns
        dot_ns = self.dot_ns(sight)
        end_ns = -(-end_ns // dot_ns) * dot_ns
        return end_ns - self.range_ns, end_ns

    def dot_ns(self, sight: Viewport) -> int:
        return max(self.range_ns // (2 * sight.cells_count), 1)

    def move(self, step: int, sight: Viewport) -> None:
        """The cursor to the next cell; past an edge the stretch follows."""
        begin_ns, end_ns = self.edges(sight)
        cells = Span(begin_ns, end_ns, sight.cells_count)
        at_ns = self.cursor(sight)
        cell = cells.index(at_ns) if at_ns is not None else None
        moved = (cell if cell is not None else cells.slices_count if step < 0 else -1) + step
        moved_ns = begin_ns + (2 * moved + 1) * (end_ns - begin_ns) // (2 * cells.slices_count)
        if not begin_ns <= moved_ns < end_ns:
            if step > 0 and self.end_ns is None:
                return
            self.end_ns = _bounded(end_ns + step * (end_ns - begin_ns) // 4, sight)
        self.cursor_ns = moved_ns

    def pan(self, step: int, sight: Viewport) -> None:
        begin_ns, end_ns = self.edges(sight)
        self.end_ns = _bounded(end_ns + step * (end_ns - begin_ns) // 2, sight)

    def zoom(self, step: int, sight: Viewport | None) -> None:
        """A longer or shorter stretch; the cursor stays where it is on the screen."""
        edges = self.edges(sight) if sight is not None else None
        place = min(max(RANGES_S.index(self.range_s) + step, 0), len(RANGES_S) - 1)
        ratio, self.range_s = RANGES_S[place] / self.range_s, RANGES_S[place]
        if edges is not None and sight is not None and self.cursor_ns is not None and ratio != 1:
            self.end_ns = _bounded(self.cursor_ns + round((edges[1] - self.cursor_ns) * ratio), sight)

    def follow(self) -> None:
        self.cursor_ns = self.end_ns = None


def _bounded(end_ns: int, sight: Viewport) -> int | None:
    """Where to end; None at or beyond the newest, which is followed."""
    if end_ns < sight.newest_ns:
        return end_ns
    return sight.newest_ns if sight.past_ns is not None else None
