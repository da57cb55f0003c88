"""Places and threads that users of one daemon share: however many windows one user has waiting, another's is next."""

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

THREADS_COUNT = 4  # that read the operating system and the store for windows
PATIENCE_S = 60.0  # milliseconds of work behind that of a thousand windows; longer is a thread that could not be started


_START_S = 10.0


def running_pool(count: int, name: str) -> ThreadPoolExecutor:
    """Make a pool whose threads run already.

    A thread that is started for a request may fail to start; where memory is short, starting it may never return.

    Raises DaemonError: when the machine gives fewer threads.
    """
    pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)
    met = threading.Barrier(count + 1)  # no thread is idle before all are there, so each submission starts one
    try:
        for _ in range(count):
            pool.submit(met.wait, _START_S)
        met.wait(_START_S)
    except RuntimeError as error:  # a broken barrier is one, too
        met.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        raise DaemonError(
            f"expected to start {count} threads, found: {error or 'not all of them began'}; "
            "raise the limit of tasks (ulimit -u, TasksMax, pids.max) or of memory"
        ) from error
    return pool


class UserTurns:
    """A number of places, each given to the waiting user who was served least recently, in the order that user asked.

    A user who asks for the first time waits for one place to become free, and for no queue.  All is of one event loop.
    """

    def __init__(self, places_count: int = 1) -> None:
        self._free_count = places_count
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}
        self._served: dict[int, int] = {}  # the number of each user's last turn
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def turn(self, uid: int) -> AsyncIterator[None]:
        """Hold a place of this user's for the body."""
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
            if place.done() and not place.cancelled():  # given in the moment in which the wait was given up
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            uid = min(self._waiting, key=lambda each: self._served.get(each, 0))
            places = self._waiting[uid]
            place = places.popleft()
            if not places:
                del self._waiting[uid]
            if not place.done():  # else its wait was given up
                self._served[uid] = next(self._numbers)
                place.set_result(None)
                return
        self._free_count += 1


class InThread(Protocol):
    """Awaits a function in a thread: reading the operating system takes milliseconds, and the loop has other windows."""

    def __call__(self, work: Callable[..., _T], *arguments: object) -> Awaitable[_T]: ...


class UserThreads:
    """Threads that read the operating system and the store, for each user in that user's turn."""

    def __init__(self, threads: Executor, *, patience_s: float = PATIENCE_S) -> None:
        self._threads = threads
        self._patience_s = patience_s
        self._turns = UserTurns(THREADS_COUNT)

    def of(self, uid: int) -> InThread:
        """Return what runs a function in a thread for this user.  It raises TimeoutError: where no thread does it in time."""

        async def in_thread(work: Callable[..., _T], *arguments: object) -> _T:
            # A pool whose thread could not be started, for want of memory, keeps its work without ever doing it.
            async with asyncio.timeout(self._patience_s), self._turns.turn(uid):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

        return in_thread
