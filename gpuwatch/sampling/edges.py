"""The edges of windows on their GPUs: read in threads, and waited for no longer than a benchmark can bear."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from gpuwatch import clock
from gpuwatch.sampling.sampler import Sampler

EDGE_S = 0.25  # a GPU that takes longer for its edge readings is not waited for, because the benchmark waits
HAND_OVER_S = 2.0  # readings reach the sinks in milliseconds, unless the driver hangs or no processor is free


@dataclass
class _Job:
    """Marks of several GPUs, one after the other in one thread."""

    work: Sequence[tuple[str, Callable[[], None]]]
    begun_ns: int
    asking: str | None = None
    done: asyncio.Future[None] | None = None

    def run(self) -> None:
        for uuid, mark in self.work:
            self.asking = uuid
            mark()

    def holds_up(self, uuid: str) -> bool:
        """Return whether this GPU waits for another GPU that answers too slowly."""
        return self.asking not in (None, uuid) and clock.now_ns() - self.begun_ns > EDGE_S * 1e9


class Edges:
    """Edge readings.  All methods run in the daemon's event loop; windows that open or close together share one reading."""

    def __init__(self, samplers: Callable[[], Mapping[str, Sampler]], threads: Executor) -> None:
        self._samplers = samplers
        self._threads = threads
        self._marks: dict[str, _Job] = {}
        self._edges: dict[str, asyncio.Future[None]] = {}
        self._told: dict[str, asyncio.Future[None]] = {}

    def mark(self, uuids: Sequence[str]) -> Awaitable[None]:
        """Begin to read the cheap part of these GPUs' edges, one after the other; the opening of a window awaits the result.

        In one thread: the first call after a pause costs ten times the next, and so do threads that wait for each other.
        A GPU that is sampled at the full rate needs no reading of its own: its last pulse is some 10 ms old, its last whole row
        some 50 ms.
        """
        answering = {uuid: sampler for uuid, sampler in self._answering(uuids).items() if not sampler.is_active}
        fresh = [(uuid, sampler.mark) for uuid, sampler in answering.items() if not self._is_marking(uuid)]
        if fresh:
            job = _Job(fresh, clock.now_ns())
            job.done = asyncio.get_running_loop().run_in_executor(self._threads, job.run)
            self._marks.update({uuid: job for uuid, _ in fresh})
        return _wait({done for uuid in answering if (done := self._marks[uuid].done) is not None}, EDGE_S)

    async def edge(self, uuids: Sequence[str]) -> None:
        """Read the edges of these GPUs in parallel."""
        loop, answering = asyncio.get_running_loop(), self._answering(uuids)
        for uuid, sampler in answering.items():
            if uuid not in self._edges or self._edges[uuid].done():
                self._edges[uuid] = loop.run_in_executor(self._threads, sampler.edge)
        await _wait({self._edges[uuid] for uuid in answering}, EDGE_S)

    async def hand_over(self, uuids: Sequence[str]) -> tuple[str, ...]:
        """Have all readings of these GPUs so far passed to the sinks.  Return the GPUs for which that took too long."""
        answering = self._answering(uuids)
        for uuid, sampler in answering.items():
            if uuid not in self._told or self._told[uuid].done():  # a pending hand-over will include the new readings
                self._told[uuid] = asyncio.get_running_loop().create_future()
                sampler.hand_over(_settling(self._told[uuid]))
        told = {uuid: self._told[uuid] for uuid in answering}  # a window that ends meanwhile may ask again
        await _wait(set(told.values()), HAND_OVER_S)
        return tuple(uuid for uuid, each in told.items() if not each.done())

    async def read_power(self, uuids: Sequence[str]) -> None:
        """Have the dense power record of these GPUs read up to now."""
        loop = asyncio.get_running_loop()
        told = [loop.create_future() for _ in self._answering(uuids)]
        for sampler, each in zip(self._answering(uuids).values(), told, strict=True):
            sampler.read_power(_settling(each))
        await _wait(set(told), EDGE_S)

    def _answering(self, uuids: Sequence[str]) -> dict[str, Sampler]:
        found = {uuid: sampler for uuid in uuids if (sampler := self._samplers().get(uuid)) is not None}
        return {uuid: sampler for uuid, sampler in found.items() if sampler.lost is None}

    def _is_marking(self, uuid: str) -> bool:
        job = self._marks.get(uuid)
        return job is not None and job.done is not None and not job.done.done() and not job.holds_up(uuid)


async def _wait(jobs: set[asyncio.Future[None]], timeout_s: float) -> None:
    if jobs:
        await asyncio.wait(jobs, timeout=timeout_s)


def _settling(told: asyncio.Future[None]) -> Callable[[], None]:
    """Return a function to be called once, from any thread."""
    loop = told.get_loop()

    def settle() -> None:
        if not told.done():
            told.set_result(None)

    def given() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon is exiting
            loop.call_soon_threadsafe(settle)

    return given
