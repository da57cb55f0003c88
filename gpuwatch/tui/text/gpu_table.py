"""The table of all GPUs, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from annotate.evidence import Lane
from annotate.output import report
from gpuwatch.tui.text import gpu_words
from gpuwatch.tui.text.words import Piece, Tone, counted, cut, reasons
from gpuwatch.view.live import Live, LiveGpu

WIDE_COLUMNS = 116  # from here on there is room for bars
BAR_COUNT = 8


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the GPUs' table: its heading and width."""

    heading: str
    width: int
    left: bool = False


def columns(width: int) -> list[TableColumn]:
    """Return the columns that fit: bars on a wide screen; reasons take the rest of the line."""
    bar = [TableColumn("", BAR_COUNT, left=True)] if width >= WIDE_COLUMNS else []
    return [
        TableColumn("GPU", 3),
        TableColumn("", 8 if width < 100 else 16, left=True),
        TableColumn("SM MHz/max", 14),
        *bar,
        TableColumn("W/limit", 8),
        *bar,
        TableColumn("°C/slow ", 8),
        TableColumn("util", 4),
        TableColumn("GB/total", 8),
        TableColumn("procs", 6),
    ]


def bar(ratio: float | None) -> str:
    """Draw a ratio in eighths of a character; above 1 is full."""
    if ratio is None:
        return ""
    eighths = round(min(max(ratio, 0.0), 1.0) * BAR_COUNT * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")


def _ratio(amount: float | None, most: float | None) -> float | None:
    return amount / most if amount is not None and most else None


def _fitted(piece: Piece, column: TableColumn) -> Piece:
    text = piece.text if len(piece.text) <= column.width else piece.text[: column.width - 1] + "…"
    return Piece(text.ljust(column.width) if column.left else text.rjust(column.width), piece.tone)


def gpu_lines(live: Live, width: int) -> Iterator[list[Piece]]:
    """Draw the table of all GPUs, its heading first."""
    wanted = columns(width)
    used = sum(column.width for column in wanted) + len(wanted)
    yield [piece for column in wanted for piece in (_fitted(Piece(column.heading, Tone.DIM), column), Piece(" "))] + [
        Piece("clock event reasons" if width - used >= 19 else "reasons", Tone.DIM)
    ]
    for position, gpu in enumerate(live.gpus):
        yield _gpu_line(position, gpu, live, wanted, max(width - used, 3))
    if live.gpus_left_out_count:
        yield [Piece(f"and {counted(live.gpus_left_out_count, 'more GPU')}", Tone.DIM)]
    if live.unanswered:  # numbered by the driver, which counts them where the table does not
        yield [Piece(cut(f"not answering, by the driver's index: {report.plain('; '.join(live.unanswered))}", width), Tone.BAD)]


def _gpu_line(position: int, gpu: LiveGpu, live: Live, wanted: Sequence[TableColumn], room: int) -> list[Piece]:
    head = [Piece(str(position)), Piece(gpu_words.name(gpu))]
    if gpu.lost is not None or Lane.FAST not in gpu.rows:
        why = f"LOST  {report.plain(gpu.lost)}" if gpu.lost is not None else "no reading of this time"
        start = [piece for each, column in zip(head, wanted, strict=False) for piece in (_fitted(each, column), Piece(" "))]
        left = sum(column.width + 1 for column in wanted[2:]) + room
        return [*start, Piece(cut(why, left), Tone.BAD if gpu.lost is not None else Tone.DIM)]
    stale = gpu_words.stale_s(gpu, live.at_ns)
    wide = len(wanted) == len(columns(WIDE_COLUMNS))
    limit = gpu.said("power_limit_w") or gpu.device.power_limit_w
    bars = [bar(_ratio(gpu.said("sm_clock_mhz"), gpu.device.sm_clock_max_mhz)), bar(_ratio(gpu.said("power_w"), limit))]
    held, drawn = gpu_words.clock(gpu), gpu_words.power(gpu)
    cells = [
        *head,
        held,
        *([Piece(bars[0], held.tone)] if wide else []),
        drawn,
        *([Piece(bars[1], drawn.tone)] if wide else []),
        gpu_words.temperature(gpu),
        gpu_words.utilisation(gpu),
        gpu_words.memory(gpu),
        gpu_words.processes(gpu, live.windows),
    ]
    cells = [Piece(cell.text, Tone.DIM) for cell in cells] if stale is not None else cells
    end = [Piece(f"STALE {stale:.0f} s", Tone.BAD)] if stale is not None else reasons(gpu.said("event_reasons_mask"), room)
    return [piece for each, column in zip(cells, wanted, strict=True) for piece in (_fitted(each, column), Piece(" "))] + end


def absence_lines(live: Live) -> list[list[Piece]]:
    """Say why there is no GPU, and what to do."""
    return [
        [Piece("no GPU to watch", Tone.BAD), Piece(f": {report.plain(live.absence or 'the source names none')}")],
        [Piece("`gpuwatch doctor` says why; --source simulated shows invented ones", Tone.DIM)],
    ]
