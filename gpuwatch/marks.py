"""Marks at the edges of iterations: on the GPU where this process has one, else by the host's clock."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from annotate.evidence import Timings
from gpuwatch import clock, torch_context
from gpuwatch.wire import TIMES_COUNT, FactValue


class Marks(Protocol):
    """Marks the edges of iterations and gives their times; ``timer`` is what took them, as told."""

    timer: str

    def begin(self) -> None:
        """An iteration begins."""

    def end(self) -> None:
        """It has ended."""

    def next(self) -> None:
        """It has ended and another one begins at once."""

    def timings(self) -> Timings | None:
        """What was marked so far, None for nothing.  It waits until the GPU has done it."""

    def told(self) -> dict[str, FactValue]:
        """What else the marks tell, once their times were asked for."""


class HostMarks:
    """The host's clock: what a process without a GPU of its own has."""

    timer = "host"

    def told(self) -> dict[str, FactValue]:
        return {"timer": self.timer}

    def __init__(self) -> None:
        self._edges_ns: list[tuple[int, int]] = []
        self._begun_ns: int | None = None

    def begin(self) -> None:
        self._begun_ns = clock.now_ns()

    def end(self) -> None:
        if self._begun_ns is not None and len(self._edges_ns) < TIMES_COUNT:
            self._edges_ns.append((self._begun_ns, clock.now_ns()))
        self._begun_ns = None

    def next(self) -> None:
        self.end()
        self.begin()

    def timings(self) -> Timings | None:
        if not self._edges_ns:
            return None
        begins_ns, ends_ns = np.array(self._edges_ns, np.int64).T
        return Timings(begins_ns.copy(), (ends_ns - begins_ns) / 1e9)


def here(count: int) -> Marks:
    """Marks for about so many iterations: CUDA events and stamps where torch has a context, and no graph is being captured."""
    cuda = torch_context.cuda_at_hand()
    if cuda is None:
        return HostMarks()
    from gpuwatch.cuda.marks import CudaMarks

    return CudaMarks(cuda, count)
