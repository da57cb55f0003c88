"""The processes on the GPUs, always without their command lines, which may hold secrets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from annotate.evidence import Ownership, Process, Visibility
from annotate.output import report
from gpuwatch.tui.data_interfaces import ScreenContent
from gpuwatch.tui.requests import StoreSortOrder
from gpuwatch.tui.screens.screen_base import QuietScroll, SecondaryScreen
from gpuwatch.tui.text import words
from gpuwatch.tui.text.window_coverage import owned_processes
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.text_lines import TextLines
from gpuwatch.view.live import Live

ORDERS = ("gpu", "memory", "user", "name")
_OWNERS = {
    Ownership.OWN: ("o own", Tone.GOOD), Ownership.FOREIGN: ("F foreign", Tone.WARN), Ownership.UNKNOWN: ("– unknown", Tone.DIM),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process on one GPU."""

    position: int
    process: Process
    owner: Ownership


def gpu_processes(live: Live) -> list[GpuProcess]:
    """Return the processes of all GPUs, each with its owner."""
    return [
        GpuProcess(position, process, owner)
        for position, gpu in enumerate(live.gpus)
        for process, owner in owned_processes(gpu, live.windows)
    ]


def sort_processes(found: Sequence[GpuProcess], order: str) -> list[GpuProcess]:
    match order:
        case "memory":
            return sorted(found, key=lambda each: -(each.process.memory_bytes or 0))
        case "user" | "name":
            return sorted(found, key=lambda each: (getattr(each.process, order) or "~", each.position, each.process.pid))
        case _:
            return sorted(found, key=lambda each: (each.position, -(each.process.memory_bytes or 0)))


def lines(live: Live, order: str, width: int) -> Iterator[list[Piece]]:
    """Draw the table, its heading first."""
    yield [
        Piece(
            words.cut(f"GPU {'pid':>8}  {'whose':<10}{'user':<13}{'memory':>9}{'util':>6}  name   (by {order})", width),
            Tone.DIM,
        )
    ]
    found = sort_processes(gpu_processes(live), order)
    for each in found:
        process, (whose, tone) = each.process, _OWNERS[each.owner]
        memory = words.NOTHING if process.memory_bytes is None else f"{process.memory_bytes / 1e9:.1f} GB"
        busy = words.NOTHING if process.utilization_ratio is None else f"{process.utilization_ratio:.0%}"
        user = words.cut(report.plain(process.user or words.NOTHING), 12)
        name = words.cut(report.plain(process.name or words.NOTHING), max(width - 52, 8))
        yield [
            Piece(f"{each.position:>3} {process.pid:>8}  "),
            Piece(f"{whose:<10}", tone),
            Piece(f"{user:<13}{memory:>9}{busy:>6}  {name}"),
        ]
    if not found:
        seen = any(gpu.process_list is not None for gpu in live.gpus)
        yield [Piece("  no process on any GPU" if seen else "  the process lists were not observed", Tone.DIM)]
    if left_out_count := sum(gpu.processes_left_out_count for gpu in live.gpus):
        yield [Piece(f"  and {left_out_count} more", Tone.DIM)]
    if any(gpu.process_list is not None and gpu.process_list.visibility is Visibility.NAMESPACE for gpu in live.gpus):
        yield [Piece(words.cut("  ≥ a container's view: other processes may be on the GPUs", width), Tone.DIM)]


class ProcessesScreen(SecondaryScreen):
    """All GPUs' processes in one table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "sort", id="sort", tooltip="Sort by GPU, memory, user or name in turn; the order is stored"),
    ]

    def __init__(self, order: str) -> None:
        super().__init__()
        self._order = order if order in ORDERS else ORDERS[0]
        self._live: Live | None = None

    def body(self) -> Iterable[Widget]:
        yield QuietScroll(TextLines())

    def show_content(self, content: ScreenContent) -> None:
        self._live = content.live
        self._draw()

    def action_sort(self) -> None:
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self.post_message(StoreSortOrder(self._order))
        self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            self.query_one(QuietScroll).query_one(TextLines).show(lines(self._live, self._order, self.columns))
