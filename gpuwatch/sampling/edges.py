"""Readings at the edges of windows, made in threads and with time limits, because verdicts wait."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from gpuwatch.sampling.sampler import Sampler

EDGE_S = 0.25  # longest wait for edge readings or power records, because a hung driver must not delay the verdict
HAND_OVER_S = 2.0  # readings reach the sinks in milliseconds, unless the driver hangs or no CPU is free


class Edges:
    """Edge readings.  All methods run in the daemon's event loop; windows that open or close together share one reading."""

    def __init__(self, samplers: Callable[[], Mapping[str, Sampler]], threads: Executor) -> None:
        self._samplers = samplers
        self._threads = threads
        self._edges: dict[str, asyncio.Future[None]] = {}
        self._pending: dict[str, asyncio.Future[None]] = {}

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
