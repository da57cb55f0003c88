"""Marks at the edges of iterations: on the GPU where this process has one, else by the host's clock."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from annotate.evidence import Timings
from gpuwatch import clock
from gpuwatch.process import torch_state
from gpuwatch.wire.messages import TIMES_COUNT, FactValue


class Marks(Protocol):
    """Marks the edges of iterations and gives their times; ``timer`` is what took them, as told.

    What an iteration needs of its beginning it keeps itself, whatever that is: iterations nest, and threads have their own.
    """

    timer: str

    def begin(self) -> Any:
        """An iteration begins; None where it is not marked."""

    def end(self, begun: Any) -> None:
        """The one that began so has ended."""

    def next(self, begun: Any) -> Any:
        """It has ended and another one begins at once."""

    def timings(self) -> Timings | None:
        """What was marked so far in the order of beginnings, None for nothing.  It waits until the GPU has done it."""

    def told(self) -> dict[str, FactValue]:
        """What else the marks tell, once their times were asked for."""

    def close(self) -> None:
        """Give back what they hold of the GPU."""


class HostMarks:
    """The host's clock: what a process without a GPU of its own has."""

    timer = "host"

    def told(self) -> dict[str, FactValue]:
        return {"timer": self.timer}

    def __init__(self) -> None:
        self._edges_ns: list[tuple[int, int]] = []

    def begin(self) -> int:
        return clock.now_ns()

    def end(self, begun: int) -> None:
        if len(self._edges_ns) < TIMES_COUNT:
            self._edges_ns.append((begun, clock.now_ns()))

    def next(self, begun: int) -> int:
        self.end(begun)
        return clock.now_ns()

    def timings(self) -> Timings | None:
        if not self._edges_ns:
            return None
        begins_ns, ends_ns = np.array(self._edges_ns, np.int64).T
        return in_order(Timings(begins_ns.copy(), (ends_ns - begins_ns) / 1e9))

    def close(self) -> None:
        """They hold nothing."""


def in_order(timings: Timings) -> Timings:
    """By their beginnings: nested iterations, and those of threads, end in another order than they begin."""
    if (np.diff(timings.at_ns) >= 0).all():
        return timings
    order = np.argsort(timings.at_ns, kind="stable")
    clocks_mhz = None if timings.sm_clock_mhz is None else timings.sm_clock_mhz[order]
    return Timings(timings.at_ns[order], timings.took_s[order], clocks_mhz, timings.calls_count)


def here(count: int, driver: Any = None) -> Marks:  # cuda has no types
    """Marks for about so many iterations: CUDA events and stamps where torch has a context, and no graph is being captured."""
    cuda = torch_state.cuda_at_hand()
    if cuda is None:
        return HostMarks()
    from gpuwatch.cuda.event_marks import CudaMarks

    return CudaMarks(cuda, count, driver)
