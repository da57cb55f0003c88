"""Places that users of one daemon share: however many windows one user has waiting, another's is next."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator


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
