"""Fair turns for the users of one daemon: after one window of a user, another user's window is next."""

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol, TypeVar

from gpuwatch.errors import DaemonError

_T = TypeVar("_T")

THREADS_COUNT = 4  # threads that read the operating system and the store for windows
PATIENCE_S = 60.0  # a thousand queued windows take milliseconds each; a longer wait means that no thread could start


_START_S = 10.0


def running_pool(count: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads are all running.

    A thread started on demand may fail to start, and where memory is short the attempt may never return.

    Raises DaemonError: when the machine cannot start this number of threads.
    """
    pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)
    met = threading.Barrier(count + 1)  # no thread is idle before all have started, so each submission starts one
    try:
        for _ in range(count):
            pool.submit(met.wait, _START_S)
        met.wait(_START_S)
    except RuntimeError as error:  # BrokenBarrierError is a RuntimeError, too
        met.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        raise DaemonError(
            f"expected to start {count} threads, found: {error or 'fewer in 10 s'}; "
            "raise the limit of tasks (ulimit -u, TasksMax, pids.max) or of memory"
        ) from error
    return pool


class UserTurns:
    """A number of places.  A free place goes to the waiting user served least recently, in that user's order of requests.

    A user without an earlier turn comes first.  All calls come from one event loop.
    """

    def __init__(self, places_count: int = 1) -> None:
        self._free_count = places_count
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}
        self._served: dict[int, int] = {}  # the number of each user's last turn
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def turn(self, uid: int) -> AsyncIterator[None]:
        """Hold a place for this user during the body."""
        if self._free_count:
            self._free_count -= 1
            self._served[uid] = next(self._numbers)
        else:
            await self._given(uid)
        try:
            yield
        finally:
            self._pass_on()

    async def _given(self, uid: int) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uid, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # granted just when the wait was cancelled
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            uid = min(self._waiting, key=lambda each: self._served.get(each, 0))
            places = self._waiting[uid]
            place = places.popleft()
            if not places:
                del self._waiting[uid]
            if not place.done():  # done: its wait was cancelled
                self._served[uid] = next(self._numbers)
                place.set_result(None)
                return
        self._free_count += 1


class InThread(Protocol):
    """A function that awaits work in a thread: reads of the operating system would block the event loop for milliseconds."""

    def __call__(self, work: Callable[..., _T], *arguments: object) -> Awaitable[_T]: ...


class UserThreads:
    """Threads that read the operating system and the store, shared fairly among users."""

    def __init__(self, threads: Executor, *, patience_s: float = PATIENCE_S) -> None:
        self._threads = threads
        self._patience_s = patience_s
        self._turns = UserTurns(THREADS_COUNT)

    def of(self, uid: int) -> InThread:
        """Return a function that runs work in a thread in this user's turn.

        The function raises TimeoutError: when the work is not done in time.
        """

        async def in_thread(work: Callable[..., _T], *arguments: object) -> _T:
            # The time limit also covers a thread that cannot start: the pool would keep its work without running it.
            async with asyncio.timeout(self._patience_s), self._turns.turn(uid):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

        return in_thread
