"""Tests of users' turns."""

from __future__ import annotations

import asyncio
import contextlib

from gpuwatch.daemon.user_turns import UserTurns
from tests.waiting import PATIENCE_S

MINE, THEIRS, OTHERS = 1000, 1001, 1002


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def order(turns: UserTurns, asked: list[tuple[int, str]], late: list[tuple[int, str]]) -> list[str]:
    """Return the order of service: ``late`` arrive while the first of ``asked`` holds the place."""
    served: list[str] = []
    go = asyncio.Event()

    async def use(uid: int, name: str) -> None:
        async with turns.turn(uid):
            served.append(name)
            await go.wait()

    tasks = [asyncio.create_task(use(uid, name)) for uid, name in asked]
    await settled()
    tasks += [asyncio.create_task(use(uid, name)) for uid, name in late]
    await settled()
    go.set()
    await asyncio.gather(*tasks)
    return served


def test_user_turns_serve_a_newcomer_next() -> None:
    """A user who arrives behind another's 2048 requests is served right after the current one."""
    many = [(MINE, f"mine{number}") for number in range(2048)]
    served = asyncio.run(order(UserTurns(), many, [(THEIRS, "theirs")]))
    assert served[:3] == ["mine0", "theirs", "mine1"]
    assert [name for name in served if name != "theirs"] == [name for _, name in many]


def test_user_turns_alternate_between_users() -> None:
    """Users with several requests alternate, each in order of arrival."""
    asked = [(MINE, "a0"), (MINE, "a1"), (MINE, "a2"), (THEIRS, "b0"), (THEIRS, "b1"), (OTHERS, "c0")]
    assert asyncio.run(order(UserTurns(), asked, [])) == ["a0", "b0", "c0", "a1", "b1", "a2"]


def test_user_turns_survive_given_up_waits() -> None:
    """An abandoned wait, before or just after its place is given, loses no place."""

    async def body() -> None:
        turns = UserTurns(2)
        for _ in range(3):
            go = asyncio.Event()

            async def hold(uid: int, go: asyncio.Event = go) -> None:
                async with turns.turn(uid):
                    await go.wait()

            holding = [asyncio.create_task(hold(MINE)) for _ in range(2)]
            await settled()
            waiting = [asyncio.create_task(hold(THEIRS)) for _ in range(4)]
            await settled()
            waiting[0].cancel()
            go.set()
            for task in holding:
                task.cancel()
            await asyncio.sleep(0)
            waiting[1].cancel()  # this wait may just have got a place
            for task in (*holding, *waiting):
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        assert await asyncio.wait_for(order(turns, [(MINE, "a"), (MINE, "b")], []), PATIENCE_S) == ["a", "b"]

    asyncio.run(body())
