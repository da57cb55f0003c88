"""The tables of all GPUs, and of open and recent windows, as lines of text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from annotate.evidence import Lane
from annotate.output import report
from annotate.verdict import Status
from gpuwatch.tui.text import gpu_words
from gpuwatch.tui.text.words import NOTHING, Piece, Tone, counted, cut, reasons, span, status
from gpuwatch.view.live import Live, LiveGpu
from gpuwatch.wire.shown import Shown

WIDE_COLUMNS = 116  # least width of a screen with bars
BAR_COUNT = 8


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the GPUs' table: its heading and width."""

    heading: str
    width: int
    left: bool = False


def columns(width: int) -> list[TableColumn]:
    """Return the columns, with bars on a wide screen.  Reasons take the rest of the line."""
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


def bar(amount: float | None, most: float | None) -> str:
    """Draw a share of the maximum in eighths of a character; values above the maximum fill the bar."""
    if amount is None or not most:
        return ""
    eighths = round(min(max(amount / most, 0.0), 1.0) * BAR_COUNT * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")


def _row(cells: Iterable[Piece], wanted: Iterable[TableColumn]) -> Iterator[Piece]:
    for cell, column in zip(cells, wanted, strict=False):
        text = cut(cell.text, column.width)
        yield Piece(text.ljust(column.width) if column.left else text.rjust(column.width), cell.tone)
        yield Piece(" ")


def gpu_lines(live: Live, width: int) -> Iterator[list[Piece]]:
    """Draw the table of all GPUs, its heading first."""
    wanted = columns(width)
    used = sum(column.width for column in wanted) + len(wanted)
    headings = _row((Piece(column.heading, Tone.DIM) for column in wanted), wanted)
    yield [*headings, Piece("clock event reasons" if width - used >= 19 else "reasons", Tone.DIM)]
    for position, gpu in enumerate(live.gpus):
        yield _gpu_line(position, gpu, live, wanted, max(width - used, 3))
    if live.gpus_left_out_count:
        yield [Piece(f"and {counted(live.gpus_left_out_count, 'more GPU')}", Tone.DIM)]
    if live.unanswered:  # The driver's own numbers: the table does not list these GPUs.
        yield [Piece(cut(f"not answering, by the driver's index: {report.plain('; '.join(live.unanswered))}", width), Tone.BAD)]


def _gpu_line(position: int, gpu: LiveGpu, live: Live, wanted: Sequence[TableColumn], room: int) -> list[Piece]:
    head = [Piece(str(position)), Piece(gpu_words.name(gpu))]
    if gpu.lost is not None or Lane.FAST not in gpu.rows:
        why = f"LOST  {report.plain(gpu.lost)}" if gpu.lost is not None else "no reading at this time"
        left = sum(column.width + 1 for column in wanted[2:]) + room
        return [*_row(head, wanted), Piece(cut(why, left), Tone.BAD if gpu.lost is not None else Tone.DIM)]
    stale = gpu_words.stale_s(gpu, live.at_ns)
    wide = len(wanted) == len(columns(WIDE_COLUMNS))
    clock_bar = bar(gpu.said("sm_clock_mhz"), gpu.device.sm_clock_max_mhz)
    power_bar = bar(gpu.said("power_w"), gpu.said("power_limit_w") or gpu.device.power_limit_w)
    held, drawn = gpu_words.clock(gpu), gpu_words.power(gpu)
    cells = [
        *head,
        held,
        *([Piece(clock_bar, held.tone)] if wide else []),
        drawn,
        *([Piece(power_bar, drawn.tone)] if wide else []),
        gpu_words.temperature(gpu),
        gpu_words.utilisation(gpu),
        gpu_words.memory(gpu),
        gpu_words.processes(gpu, live.windows),
    ]
    cells = [Piece(cell.text, Tone.DIM) for cell in cells] if stale is not None else cells
    end = [Piece(f"STALE {stale:.0f} s", Tone.BAD)] if stale is not None else reasons(gpu.said("event_reasons_mask"), room)
    return [*_row(cells, wanted), *end]


def absence_lines(live: Live) -> list[list[Piece]]:
    """Return the reason for an empty table, and the remedy."""
    return [
        [Piece("no GPU to watch", Tone.BAD), Piece(f": {report.plain(live.absence or 'the source has none')}")],
        [Piece("`gpuwatch doctor` gives the reason; --source simulated shows simulated GPUs", Tone.DIM)],
    ]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The order of the windows, and an optional filter by status; by default all, the newest first."""

    is_worst_first: bool = False
    status: str | None = None

    def of(self, windows: Sequence[Shown]) -> tuple[Shown, ...]:
        """Return the windows in this order; open ones come first in either order."""
        shown = [each for each in windows if self.status in (None, each.status)]
        if self.is_worst_first:
            badness = {each.value: each.badness for each in Status}
            shown.sort(key=lambda each: (each.end_ns is not None, -badness.get(each.status, 0)))
        return tuple(shown)

    def next_status(self, windows: Sequence[Shown]) -> str | None:
        """Return the next status among the windows; None, for all windows, after the last."""
        known = [None, *(each.value for each in reversed(Status) if each.value in {window.status for window in windows})]
        return known[(known.index(self.status) + 1) % len(known)] if self.status in known else None

    def __str__(self) -> str:
        said = [*(["worst first"] if self.is_worst_first else []), *([self.status] if self.status else [])]
        return f": {', '.join(said)}" if said else ""


def window_lines(
    live: Live, width: int, so_far: Mapping[str, Sequence[str]] | None = None, arrangement: Arrangement = Arrangement()
) -> Iterator[list[Piece]]:
    """Draw open and recent windows in this arrangement, with verdicts and findings; open windows show hazards ``so_far``."""
    places = {gpu.device.uuid: str(position) for position, gpu in enumerate(live.gpus)}
    label_width = 14 if width < 90 else 22 if width < 110 else 28
    yield [
        Piece(f"  {'verdict':<10}{'window':<{label_width}} {'GPU':<4}{'length':>8}{'ended':>11}  found{arrangement}", Tone.DIM)
    ]
    windows = arrangement.of(live.windows)
    for each in windows:
        chip = status(each.status)
        over_ns = (each.end_ns if each.end_ns is not None else live.at_ns) - each.begin_ns
        ended = "open" if each.end_ns is None else f"{span(max(0, live.at_ns - each.end_ns) / 1e9)} ago"
        gpus = ",".join(places.get(uuid, "?") for uuid in each.uuids) or NOTHING
        yield [
            Piece(f"{chip.letter} {chip.name:<10}", chip.tone),
            Piece(f"{cut(report.plain(each.label or each.run), label_width):<{label_width}} {cut(gpus, 3):<4}"),
            Piece(f"{span(max(0, over_ns) / 1e9):>8}{ended:>11}  ", Tone.PLAIN if each.end_ns is None else Tone.DIM),
            Piece(
                cut(_found(each, so_far or {}), max(width - label_width - 38, 8)),
                Tone.PLAIN if each.end_ns is not None else Tone.NOTE,
            ),
        ]
    if not live.windows:
        # Simulated GPUs have a separate daemon, which the plain command would not reach.
        hint = "" if live.simulated else ": gpuwatch run -- python bench.py"
        yield [Piece(f"  none yet{hint}", Tone.DIM)]
    elif not windows:
        yield [Piece("  no window with this verdict; f shows others", Tone.DIM)]
    elif live.windows_left_out_count:
        yield [Piece(f"  and {live.windows_left_out_count} more: gpuwatch audit", Tone.DIM)]


def _found(window: Shown, so_far: Mapping[str, Sequence[str]]) -> str:
    if window.end_ns is None and (seen := so_far.get(window.run)):
        return f"so far: {', '.join(seen)}"
    if window.status == "unproven" and window.why:
        return report.plain(window.why)
    return ", ".join(window.hazards) or report.plain(window.why)
