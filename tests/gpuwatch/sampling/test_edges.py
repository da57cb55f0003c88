"""Tests of edge readings: the GPUs that the opening of a window reads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpuwatch.sampling.edges import Edges


class Sampled:
    """A mock sampler at the idle or the full rate, which counts its edge readings."""

    def __init__(self, *, is_active: bool, lost: str | None = None) -> None:
        self.is_active = is_active
        self.lost = lost
        self.marks_count = 0

    def mark(self) -> None:
        self.marks_count += 1


def marks_of(**samplers: Sampled) -> dict[str, int]:
    """Return each GPU's edge readings after the opening of one window."""

    async def open_window(edges: Edges) -> None:
        await edges.mark(tuple(samplers))

    found: dict[str, Any] = dict(samplers)
    with ThreadPoolExecutor(1) as threads:
        asyncio.run(open_window(Edges(lambda: found, threads)))
    return {uuid: sampler.marks_count for uuid, sampler in samplers.items()}


def test_opening_reads_only_idle_gpus() -> None:
    """Opening a window reads neither a GPU sampled at the full rate nor a lost GPU."""
    idle, busy, lost = Sampled(is_active=False), Sampled(is_active=True), Sampled(is_active=False, lost="fell off the bus")
    assert marks_of(idle=idle, busy=busy, lost=lost) == {"idle": 1, "busy": 0, "lost": 0}


def test_opening_reads_no_gpu_sampled_at_the_full_rate() -> None:
    """Opening a window reads no GPU if every GPU is sampled at the full rate."""
    assert marks_of(busy=Sampled(is_active=True)) == {"busy": 0}
