"""Marks at the edges of iterations and of other work: on the GPU if this process uses one, else by the host's clock."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from operator import gt, itemgetter, sub
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuwatch import clock
from gpuwatch.process import torch_state
from gpuwatch.wire.messages import TIMES_COUNT, FactValue
from gpuwatch.wire.packed_times import PackedTimes

if TYPE_CHECKING:
    from gpuwatch.cuda.event_marks import CudaMarks

TIMED = -1  # means an iteration; other numbers mean a kind of other work
_ROW = struct.Struct("=qqq")


class HostMarks:
    """Marks by the host's clock; ``timer`` names the timer in the declared facts.

    An iteration stores its own start mark: iterations nest, and threads run iterations in parallel.
    """

    timer = "host"

    def __init__(self) -> None:
        # Start, end and kind of each piece, in one array: marks create no object that the garbage collector tracks.
        self._rows = array("q")

    def declared(self) -> dict[str, FactValue]:
        return {"timer": self.timer}

    def begin(self, word: int = TIMED) -> int:  # noqa: ARG002 - as CudaMarks, which stamps iterations only
        """Return a start mark in ns; ``word`` is TIMED or the number of a kind of other work."""
        return clock.now_ns()

    def end(self, begun: int, word: int = TIMED) -> None:
        if len(self._rows) < 3 * 2 * TIMES_COUNT:
            self._rows.frombytes(_ROW.pack(begun, clock.now_ns(), word))

    def next(self, begun: int) -> int:
        self.end(begun)
        return clock.now_ns()

    def reserve(self, count: int) -> None:
        """Do nothing: the array grows on demand."""

    def settle(self) -> bool:
        """Return False: reading host times is fast."""
        return False

    def reading_beside(self, rest: Callable[[], None]) -> AbstractContextManager[None]:  # noqa: ARG002 - as CudaMarks
        """Return an empty context: any thread may read these marks."""
        return nullcontext()

    def timings(self) -> PackedTimes | None:
        """Return the first TIMES_COUNT marked iterations in the order of their starts; None without iterations.

        This function avoids numpy, because the import would delay the benchmark.
        """
        begins_ns, ends_ns, words = (self._rows[place::3] for place in range(3))
        if words.count(TIMED) < len(words):  # other work is among the rows
            timed = [each for each in zip(begins_ns, ends_ns, words, strict=True) if each[2] == TIMED]
            begins_ns, ends_ns = (array("q", [each[place] for each in timed]) for place in range(2))
        if any(map(gt, begins_ns, begins_ns[1:])):  # nested and parallel iterations end in another order
            both = sorted(zip(begins_ns, ends_ns, strict=True), key=itemgetter(0))
            begins_ns, ends_ns = (array("q", [each[place] for each in both]) for place in range(2))
        if not begins_ns:
            return None
        at_ns = begins_ns[:TIMES_COUNT]
        took_s = array("d", [took_ns / 1e9 for took_ns in map(sub, ends_ns[:TIMES_COUNT], at_ns)])
        return PackedTimes(at_ns.tobytes(), took_s.tobytes(), None, 1)

    def other_work(self) -> Iterator[tuple[int, int, int]]:
        """Yield start (ns), end (ns) and kind of each piece of other work."""
        rows = self._rows
        for at in range(0, len(rows), 3):
            if rows[at + 2] != TIMED:
                yield rows[at], rows[at + 1], rows[at + 2]

    def close(self) -> None:
        """Do nothing: the host's clock holds no memory on the GPU."""


Marks: TypeAlias = "HostMarks | CudaMarks"


def prepare_gpu(driver: Any = None) -> None:  # cuda has no types
    """Import the modules for marks on the GPU and, in a CUDA context, keep memory for stamps: no iteration waits for either.

    Without a build of torch for CUDA, or a stand-in for torch, there is nothing to prepare.
    Raises RuntimeError: when the driver refuses.
    """
    built_for = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    if built_for is None and torch_state.cuda_with_context() is None:
        return
    import gpuwatch.cuda.event_marks  # noqa: F401 - see the docstring
    from gpuwatch.cuda.driver import bindings, current_driver
    from gpuwatch.cuda.stamp_buffers import keep_room

    if (found := current_driver(driver or bindings())) is not None:
        keep_room(found)


def make_marks(count: int, driver: Any = None) -> Marks:  # cuda has no types
    """Make marks for about ``count`` iterations: CUDA events and stamps if torch has a context and captures no graph.

    Raises RuntimeError: when the driver refuses.
    """
    cuda = torch_state.cuda_at_hand()
    if cuda is None:
        return HostMarks()
    from gpuwatch.cuda.event_marks import CudaMarks

    return CudaMarks(cuda, count, driver)
