"""Waiting in tests: for a condition with a deadline, and for real time with the reason.

Every deadline here ends only a failed test.  Passing tests stay far below it even on a busy machine.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

LONGEST_PAUSE_S = 0.2  # pause between two slow evaluations
PATIENCE_S = 100.0  # below the time limit of a test, so that the failure names the missing condition

_T = TypeVar("_T")


def wait_until(
    condition: Callable[[], _T],
    *,
    what: str | Callable[[], str] = "the condition",
    deadline_s: float = PATIENCE_S,
    every_s: float = 0.01,
) -> _T:
    """Return the first true answer of a condition.

    Raises AssertionError: when there is none within the deadline, with ``what``, a text or a function that makes one.
    """
    until_s = (begun_s := time.monotonic()) + deadline_s
    while not (found := condition()):
        assert time.monotonic() < until_s, _never(what, deadline_s)
        time.sleep(_pause_s(begun_s, every_s))
        begun_s = time.monotonic()
    return found


async def wait_until_async(
    condition: Callable[[], _T],
    *,
    what: str | Callable[[], str] = "the condition",
    deadline_s: float = PATIENCE_S,
    every_s: float = 0.01,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> _T:
    """Return the first true answer of a condition, and let the event loop run meanwhile; ``pause`` may be a pilot's.

    Raises AssertionError: as ``wait_until``.
    """
    until_s = (begun_s := time.monotonic()) + deadline_s
    while not (found := condition()):
        assert time.monotonic() < until_s, _never(what, deadline_s)
        await pause(_pause_s(begun_s, every_s))
        begun_s = time.monotonic()
    return found


def _pause_s(begun_s: float, every_s: float) -> float:
    """Return the pause after an evaluation that began then: three times its duration, so that waiting is mostly idle."""
    return max(every_s, min(3.0 * (time.monotonic() - begun_s), LONGEST_PAUSE_S))


def _never(what: str | Callable[[], str], deadline_s: float) -> str:
    return f"not within {deadline_s:g} s: {what if isinstance(what, str) else what()}"


def sample_for(seconds: float) -> None:
    """Let daemons sample for this time: a window's length, and the readings in it, are real time."""
    threading.Event().wait(seconds)


def let_pass(seconds: float, why: str) -> None:
    """Let real time pass for the given reason, if no condition shows that enough has passed."""
    assert why
    threading.Event().wait(seconds)


async def let_pass_async(seconds: float, why: str) -> None:
    """Let real time pass as ``let_pass`` does, and let the event loop run meanwhile."""
    assert why
    await asyncio.sleep(seconds)
