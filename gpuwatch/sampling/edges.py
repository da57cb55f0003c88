"""Readings at the edges of windows, made in threads and with time limits, because benchmarks wait."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from gpuwatch import clock
from gpuwatch.sampling.sampler import Sampler

EDGE_S = 0.25  # longest wait for a GPU's edge readings, because the benchmark waits
HAND_OVER_S = 2.0  # readings reach the sinks in milliseconds, unless the driver hangs or no CPU is free


@dataclass
class _Job:
    """The cheap edge readings of several GPUs, one after the other in one thread."""

    work: Sequence[tuple[str, Callable[[], None]]]
    begun_ns: int
    asking: str | None = None
    done: asyncio.Future[None] | None = None

    def run(self) -> None:
        for uuid, mark in self.work:
            self.asking = uuid
            mark()

    def holds_up(self, uuid: str) -> bool:
        """Return True if the job is older than ``EDGE_S`` and now reads another GPU."""
        return self.asking not in (None, uuid) and clock.now_ns() - self.begun_ns > EDGE_S * 1e9


class Edges:
    """Edge readings.  All methods run in the daemon's event loop; windows that open or close together share one reading."""

    def __init__(self, samplers: Callable[[], Mapping[str, Sampler]], threads: Executor) -> None:
        self._samplers = samplers
        self._threads = threads
        self._marks: dict[str, _Job] = {}
        self._edges: dict[str, asyncio.Future[None]] = {}
        self._pending: dict[str, asyncio.Future[None]] = {}

    def mark(self, uuids: Sequence[str]) -> Awaitable[None]:
        """Start to read the cheap part of these GPUs' edges, one after the other; the opening of a window awaits the result.

        One thread reads all GPUs, because the first call after a pause is slow, and so are threads that wait for each other.
        GPUs sampled at the full rate are skipped, because their last pulse and row are at most about 10 and 50 ms old.
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
        """Pass all earlier readings of these GPUs to the sinks; return the GPUs that took too long."""
        answering = self._answering(uuids)
        for uuid, sampler in answering.items():
            if uuid not in self._pending or self._pending[uuid].done():  # a pending hand-over will include the new readings
                self._pending[uuid] = asyncio.get_running_loop().create_future()
                sampler.hand_over(_settling(self._pending[uuid]))
        pending = {uuid: self._pending[uuid] for uuid in answering}  # another window may replace an entry
        await _wait(set(pending.values()), HAND_OVER_S)
        return tuple(uuid for uuid, each in pending.items() if not each.done())

    async def read_power(self, uuids: Sequence[str]) -> None:
        """Read the dense power record of these GPUs up to now."""
        loop = asyncio.get_running_loop()
        pending = [loop.create_future() for _ in self._answering(uuids)]
        for sampler, each in zip(self._answering(uuids).values(), pending, strict=True):
            sampler.read_power(_settling(each))
        await _wait(set(pending), EDGE_S)

    def _answering(self, uuids: Sequence[str]) -> dict[str, Sampler]:
        found = {uuid: sampler for uuid in uuids if (sampler := self._samplers().get(uuid)) is not None}
        return {uuid: sampler for uuid, sampler in found.items() if sampler.lost is None}

    def _is_marking(self, uuid: str) -> bool:
        job = self._marks.get(uuid)
        return job is not None and job.done is not None and not job.done.done() and not job.holds_up(uuid)


async def _wait(jobs: set[asyncio.Future[None]], timeout_s: float) -> None:
    if jobs:
        await asyncio.wait(jobs, timeout=timeout_s)


def _settling(pending: asyncio.Future[None]) -> Callable[[], None]:
    """Return a function that settles the future from any thread."""
    loop = pending.get_loop()

    def settle() -> None:
        if not pending.done():
            pending.set_result(None)

    def given() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon is exiting
            loop.call_soon_threadsafe(settle)

    return given
