"""Marks at the edges of iterations and of other work: on the GPU where this process uses one, else by the host's clock."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuwatch import clock
from gpuwatch.process import torch_state
from gpuwatch.wire.messages import TIMES_COUNT, FactValue

if TYPE_CHECKING:
    from annotate.evidence import Timings
    from gpuwatch.cuda.event_marks import CudaMarks

TIMED = -1  # in place of the number of a word: an iteration
_ROW = struct.Struct("=qqq")


class HostMarks:
    """Marks by the host's clock, for a process that uses no GPU; ``timer`` names the timer in the declared facts.

    An iteration stores its own beginning mark: iterations nest, and each thread has its own.
    """

    timer = "host"

    def __init__(self) -> None:
        # Begin, end and word of each, in one array: no mark makes an object that the collector tracks.
        self._rows = array("q")

    def declared(self) -> dict[str, FactValue]:
        """Return the facts that the marks declare, after their times were read."""
        return {"timer": self.timer}

    def begin(self, word: int = TIMED) -> int:  # noqa: ARG002 - as CudaMarks, which stamps iterations only
        """Mark a beginning; ``word`` is the number of other work's word."""
        return clock.now_ns()

    def end(self, begun: int, word: int = TIMED) -> None:
        if len(self._rows) < 3 * 2 * TIMES_COUNT:
            self._rows.frombytes(_ROW.pack(begun, clock.now_ns(), word))

    def next(self, begun: int) -> int:
        self.end(begun)
        return clock.now_ns()

    def reserve(self, count: int) -> None:
        """Do nothing: the array grows by itself."""

    def timings(self) -> Timings | None:
        """Return the marked iterations in the order of their beginnings; None where there are none."""
        import numpy as np

        from annotate.evidence import Timings
        from gpuwatch.wire.timings import sort_by_begin

        begins_ns, ends_ns, words = np.array(self._rows, np.int64).reshape(-1, 3).T
        timed = np.flatnonzero(words == TIMED)[:TIMES_COUNT]
        if not len(timed):
            return None
        return sort_by_begin(Timings(begins_ns[timed], (ends_ns - begins_ns)[timed] / 1e9))

    def other_work(self) -> Iterator[tuple[int, int, int]]:
        """Yield begin, end and word of each piece of other work."""
        rows = self._rows
        for at in range(0, len(rows), 3):
            if rows[at + 2] != TIMED:
                yield rows[at], rows[at + 1], rows[at + 2]

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
