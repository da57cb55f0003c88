"""Blocks of calls, timed back to back by the host's clock or by CUDA events."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from gpuwatch import clock, timers
from gpuwatch.process import torch_state

# Blocks the host may queue ahead: enough to keep the GPU busy, few enough to stop soon.
_AHEAD_COUNT = 6
# The spin kernel holds a 2 GHz GPU for 1 ms, while the host records these pairs of events.
_HOLD_CYCLES_COUNT, _OVERHEADS_COUNT = 2_000_000, 20


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive calls of one variant; ``before`` runs ahead of each call, outside the timed span."""

    variant: str
    call: Callable[[], object]
    calls_count: int
    before: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class BlockLaunch:
    """The launches of a block: host time, and the timer's reading around no work, both per call.

    ``gap_s`` is the time since the previous block; None for the first block, and for blocks with ``before``.
    """

    issue_s: float
    overhead_s: float = 0.0
    gap_s: float | None = None


@dataclass(frozen=True, slots=True)
class Timed:
    """A block and its time per call; ``starved``: the previous block ended before the host had launched this block.

    ``span_s`` is the time of the whole block, with ``before``; None means the sum of the calls' times.
    """

    block: Block
    took_s: float
    starved: bool = False
    span_s: float | None = None
    launch: BlockLaunch | None = None  # None if the host's clock times the calls

    @property
    def whole_s(self) -> float:
        return self.took_s * self.block.calls_count if self.span_s is None else self.span_s


class BlockTimer(Protocol):
    """A timer that runs blocks in the given order, and may launch a few blocks before it returns earlier ones."""

    name: str

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]: ...


class HostBlocks:
    """A timer by the host's clock, for functions that return when their work is done."""

    name = "host"

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
        for block in blocks:
            yield self._time_calls(block) if block.before is None else self._time_each(block, block.before)

    @staticmethod
    def _time_calls(block: Block) -> Timed:
        begin_ns = clock.now_ns()
        for _ in range(block.calls_count):
            block.call()
        return Timed(block, (clock.now_ns() - begin_ns) / 1e9 / block.calls_count)

    @staticmethod
    def _time_each(block: Block, before: Callable[[], object]) -> Timed:
        settle = timers.settle()
        first_ns, took_ns = clock.now_ns(), 0
        for _ in range(block.calls_count):
            before()
            settle()
            begin_ns = clock.now_ns()
            block.call()
            took_ns += clock.now_ns() - begin_ns
        return Timed(block, took_ns / 1e9 / block.calls_count, span_s=(clock.now_ns() - first_ns) / 1e9)


@dataclass(frozen=True, slots=True)
class _Launched:
    """A block in flight: the events around each timed span, and the event at the start of the block."""

    block: Block
    begin: Any  # torch has no types
    spans: list[tuple[Any, Any]]
    starved: bool
    issue_s: float  # host time per call
    earlier: Any  # the event at the end of the previous block; None for the first block

    @property
    def end(self) -> Any:
        return self.spans[-1][1]


class EventBlocks:
    """A timer by CUDA events on torch's current stream; the host queues blocks ahead to keep the GPU busy."""

    name = "events"

    def __init__(self, cuda: Any, now_ns: Callable[[], int] = clock.now_ns) -> None:  # torch.cuda: torch has no types
        self._cuda = cuda
        self._now_ns = now_ns
        self._overhead_s: float | None = None  # reading of an event pair around no work, measured on first use

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
        if self._overhead_s is None:
            self._overhead_s = self._measure_overhead_s()
        waiting: deque[_Launched] = deque()
        for block in blocks:
            earlier = waiting[-1].end if waiting else None
            begin, spans, issue_s = self._launch(block)
            # If the previous block has ended already, the GPU may have waited for launches of this block.
            starved = earlier is not None and bool(earlier.query())
            waiting.append(_Launched(block, begin, spans, starved, issue_s, earlier))
            if len(waiting) > _AHEAD_COUNT:
                yield self._read(waiting.popleft())
        while waiting:
            yield self._read(waiting.popleft())

    def _measure_overhead_s(self) -> float:
        """Return the median reading of event pairs around no work, queued behind a spin kernel; 0 without a spin kernel."""
        sleep = getattr(self._cuda, "_sleep", None)  # private in torch, so a release may drop it
        if sleep is None:
            return 0.0
        sleep(_HOLD_CYCLES_COUNT)
        pairs = [(self._record(), self._record()) for _ in range(_OVERHEADS_COUNT)]
        pairs[-1][1].synchronize()
        return float(median(first.elapsed_time(last) for first, last in pairs)) / 1e3

    def _launch(self, block: Block) -> tuple[Any, list[tuple[Any, Any]], float]:
        """Launch the calls with one span around all calls, or with a span around each call if the block has ``before``.

        Return the first event, the event pairs of the spans, and the host time per call.
        """
        begin, now_ns = self._record(), self._now_ns
        if block.before is None:
            begin_ns = now_ns()
            for _ in range(block.calls_count):
                block.call()
            issue_ns = now_ns() - begin_ns
            return begin, [(begin, self._record())], issue_ns / 1e9 / block.calls_count
        spans, issue_ns = [], 0
        for _ in range(block.calls_count):
            block.before()
            first = self._record()
            begin_ns = now_ns()
            block.call()
            issue_ns += now_ns() - begin_ns
            spans.append((first, self._record()))
        return begin, spans, issue_ns / 1e9 / block.calls_count

    def _record(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _read(self, launched: _Launched) -> Timed:
        launched.end.synchronize()
        block = launched.block
        took_s = sum(first.elapsed_time(last) for first, last in launched.spans) / 1e3 / block.calls_count
        span_s = launched.begin.elapsed_time(launched.end) / 1e3
        overhead_s = (self._overhead_s or 0.0) * len(launched.spans) / block.calls_count
        has_gap = launched.earlier is not None and block.before is None
        gap_s = launched.earlier.elapsed_time(launched.begin) / 1e3 if has_gap else None
        return Timed(block, took_s, launched.starved, span_s, BlockLaunch(launched.issue_s, overhead_s, gap_s))


def choose_timer() -> BlockTimer:
    """Return a CUDA event timer if torch has a context on a GPU in this process, else the host's clock."""
    cuda = torch_state.cuda_with_context()
    return HostBlocks() if cuda is None else EventBlocks(cuda)
