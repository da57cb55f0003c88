"""All GPUs, a line each."""

from __future__ import annotations

from gpuwatch.live import Live
from gpuwatch.tui import words
from gpuwatch.tui.lines import Lines


class Gpus(Lines):
    """Clock, power, temperature, use, processes and clock event reasons of every GPU, or why there is none."""

    def tell(self, live: Live, width: int) -> None:
        self.show(words.gpu_lines(live, width) if live.gpus else words.absence_lines(live))
