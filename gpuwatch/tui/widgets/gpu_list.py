"""The list of GPUs: one line per GPU, and on a large screen two minutes of clocks and clock event reasons."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from gpuwatch.tui.overview_history import RANGE_NS, HistoryLines, OverviewHistory
from gpuwatch.tui.text import overview_tables
from gpuwatch.tui.text.words import Piece, Tone, ago, span
from gpuwatch.tui.widgets.row_list import RowList
from gpuwatch.view.live import Live

COLUMN_FROM = 170  # least screen width for a strip next to the table
SHARE_RATIO = 0.6  # greatest share of the screen's lines; the rest is for the windows
_BESIDE_COUNT = 131  # columns of the table next to a strip
_GUTTER_COUNT = 16


class HistoryPlacement(Enum):
    """The placement of the two-minute history; NOWHERE if the screen has no room."""

    NOWHERE = auto()
    BESIDE = auto()
    BELOW = auto()
    BELOW_WITH_CLOCK = auto()


def place_history(gpus_count: int, width: int, height: int, *, more_count: int = 0) -> HistoryPlacement:
    room = int(height * SHARE_RATIO) - 1 - more_count  # without the heading and the lines after the table
    if 3 * gpus_count <= room:
        return HistoryPlacement.BELOW_WITH_CLOCK
    if 2 * gpus_count <= room:
        return HistoryPlacement.BELOW
    return HistoryPlacement.BESIDE if width >= COLUMN_FROM else HistoryPlacement.NOWHERE


def cells_count(placement: HistoryPlacement, width: int) -> int:
    return max(width - (_BESIDE_COUNT if placement is HistoryPlacement.BESIDE else _GUTTER_COUNT), 1)


class GpuList(RowList):
    """Clock, power, temperature, use, processes and clock event reasons of every GPU, or the reason for an empty list."""

    def show_live(self, live: Live, width: int, height: int, histories: OverviewHistory, chosen: str | None) -> None:
        if not live.gpus:
            self.show_rows([(None, line) for line in overview_tables.absence_lines(live)], None)
            return
        range_ns = histories.range_ns(live)
        range_s = range_ns / 1e9
        length = "2 min" if range_ns == RANGE_NS else span(range_s) if range_s < 99.95 else ago(range_s)
        more_count = bool(live.gpus_left_out_count) + bool(live.unanswered)
        where = place_history(len(live.gpus), width, height, more_count=more_count)
        every = overview_tables.gpu_lines(live, min(width, _BESIDE_COUNT - 2) if where is HistoryPlacement.BESIDE else width)
        heading = next(every)
        if where is HistoryPlacement.BESIDE:
            heading = [*_padded(heading), Piece(f"the last {length}", Tone.DIM)]
        rows: list[tuple[str | None, list[Piece]]] = [(None, heading)]
        for gpu, line in zip(live.gpus, every, strict=False):
            block: Iterable[list[Piece]] = [line]
            if where is not HistoryPlacement.NOWHERE:
                block = _with(line, histories.lines(gpu.device, live.at_ns, cells_count(where, width), range_ns), where, length)
            rows += [(gpu.device.uuid, each) for each in block]
        self.show_rows([*rows, *((None, line) for line in every)], chosen)


def _with(line: list[Piece], lines: HistoryLines, where: HistoryPlacement, length: str) -> Iterator[list[Piece]]:
    if where is HistoryPlacement.BESIDE:
        yield [*_padded(line), *lines.reasons]
        return
    yield line
    if where is HistoryPlacement.BELOW_WITH_CLOCK:
        yield [_gutter(lines.clock_range), *lines.clock]
    yield [_gutter(length), *lines.reasons]


def _padded(line: list[Piece]) -> list[Piece]:
    return [*line, Piece(" " * (_BESIDE_COUNT - sum(len(piece.text) for piece in line)))]


def _gutter(name: str) -> Piece:
    return Piece(f"  {name:<{_GUTTER_COUNT - 2}}", Tone.DIM)
