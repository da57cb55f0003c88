"""Marks at the edges of iterations: on the GPU where this process uses one, else by the host's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from annotate.evidence import Timings
from gpuwatch import clock
from gpuwatch.process import torch_state
from gpuwatch.wire.messages import TIMES_COUNT, FactValue
from gpuwatch.wire.timings import sort_by_begin

if TYPE_CHECKING:
    from gpuwatch.cuda.event_marks import CudaMarks


class HostMarks:
    """Marks by the host's clock, for a process that uses no GPU; ``timer`` names the timer in the declared facts.

    An iteration stores its own beginning mark: iterations nest, and each thread has its own.
    """

    timer = "host"

    def __init__(self) -> None:
        self._edges_ns: list[tuple[int, int]] = []

    def told(self) -> dict[str, FactValue]:
        """Return the facts that the marks declare, after their times were read."""
        return {"timer": self.timer}

    def begin(self) -> int:
        return clock.now_ns()

    def end(self, begun: int) -> None:
        if len(self._edges_ns) < TIMES_COUNT:
            self._edges_ns.append((begun, clock.now_ns()))

    def next(self, begun: int) -> int:
        self.end(begun)
        return clock.now_ns()

    def timings(self) -> Timings | None:
        """Return the marked iterations in the order of their beginnings; None where there are none."""
        if not self._edges_ns:
            return None
        begins_ns, ends_ns = np.array(self._edges_ns, np.int64).T
        return sort_by_begin(Timings(begins_ns.copy(), (ends_ns - begins_ns) / 1e9))

    def close(self) -> None:
        """Do nothing: the host's clock holds no memory on the GPU."""


Marks: TypeAlias = "HostMarks | CudaMarks"


def make_marks(count: int, driver: Any = None) -> Marks:  # cuda has no types
    """Make marks for about ``count`` iterations: CUDA events and stamps where torch has a context and captures no graph."""
    cuda = torch_state.cuda_at_hand()
    if cuda is None:
        return HostMarks()
    from gpuwatch.cuda.event_marks import CudaMarks

    return CudaMarks(cuda, count, driver)
