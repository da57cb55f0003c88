"""All GPUs, a line each."""

from __future__ import annotations

from gpuwatch.live import Live
from gpuwatch.tui import gpu_table
from gpuwatch.tui.rows import Rows


class Gpus(Rows):
    """Clock, power, temperature, use, processes and clock event reasons of every GPU, or why there is none."""

    def tell(self, live: Live, width: int, chosen: str | None) -> None:
        lines = gpu_table.gpu_lines(live, width) if live.gpus else gpu_table.absence_lines(live)
        self.show_rows(lines, [None, *(gpu.device.uuid for gpu in live.gpus)], chosen)
