"""Blocks of calls, timed one after the other without a pause: the only part of a comparison that reads a clock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from gpuwatch import clock
from gpuwatch.process import torch_state

# Blocks the host may be ahead of the GPU: enough that it never waits, few enough to stop soon.
_AHEAD_COUNT = 6


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive calls of one variant."""

    variant: str
    call: Callable[[], object]
    calls_count: int


@dataclass(frozen=True, slots=True)
class Timed:
    """A block and the time of one of its calls; ``starved``: the GPU had run out of work when the host launched more."""

    block: Block
    took_s: float
    starved: bool = False

    @property
    def whole_s(self) -> float:
        return self.took_s * self.block.calls_count


class BlockTimer(Protocol):
    """A timer that runs blocks in the order they come; it may run a few ahead of those it has returned."""

    name: str

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]: ...


class HostBlocks:
    """The host's clock around each block, for functions that return when their work is done."""

    name = "host"

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
        for block in blocks:
            begin_ns = clock.now_ns()
            for _ in range(block.calls_count):
                block.call()
            yield Timed(block, (clock.now_ns() - begin_ns) / 1e9 / block.calls_count)


class EventBlocks:
    """CUDA events around each block, on torch's current stream; the host stays ahead, so that the GPU never waits for it."""

    name = "events"

    def __init__(self, cuda: Any) -> None:  # torch.cuda: torch has no types
        self._cuda = cuda

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
        waiting: deque[tuple[Block, Any, Any, bool]] = deque()
        for block in blocks:
            first, last = (self._cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(block.calls_count):
                block.call()
            last.record()
            # The block before it is done already: the GPU waited for these launches.
            starved = bool(waiting) and bool(waiting[-1][2].query())
            waiting.append((block, first, last, starved))
            if len(waiting) > _AHEAD_COUNT:
                yield self._read(waiting.popleft())
        while waiting:
            yield self._read(waiting.popleft())

    @staticmethod
    def _read(launched: tuple[Block, Any, Any, bool]) -> Timed:
        block, first, last, starved = launched
        last.synchronize()
        return Timed(block, first.elapsed_time(last) / 1e3 / block.calls_count, starved)


def choose_timer() -> BlockTimer:
    """Return events where torch made a context on a GPU in this process, else the host's clock."""
    cuda = torch_state.cuda_with_context()
    return HostBlocks() if cuda is None else EventBlocks(cuda)
