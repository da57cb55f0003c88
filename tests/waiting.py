"""Waiting in tests: for a condition with a deadline, and for real time with the reason.

Every deadline here ends a test that has failed.  No machine is so busy that a test which passes comes near one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

LONGEST_PAUSE_S = 0.2  # between two looks that take long
PATIENCE_S = 100.0  # below the time limit of a test, so that the failure names what never came about

_T = TypeVar("_T")


def wait_until(
    condition: Callable[[], _T],
    *,
    what: str | Callable[[], str] = "the condition",
    deadline_s: float = PATIENCE_S,
    every_s: float = 0.01,
) -> _T:
    """Return the first true answer of a condition.

    Raises AssertionError: when there is none within the deadline, with ``what``, which may be a text made then.
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
    """Return how long to pause after a look that began then: three times as long as it took, so that waiting is mostly idle."""
    return max(every_s, min(3.0 * (time.monotonic() - begun_s), LONGEST_PAUSE_S))


def _never(what: str | Callable[[], str], deadline_s: float) -> str:
    return f"not within {deadline_s:g} s: {what if isinstance(what, str) else what()}"


def sample_for(seconds: float) -> None:
    """Let daemons sample for so long: the length of a window, and what is seen in it, is real time."""
    threading.Event().wait(seconds)


def let_pass(seconds: float, why: str) -> None:
    """Let real time pass where no condition tells that enough has passed, for the reason given."""
    assert why
    threading.Event().wait(seconds)


async def let_pass_async(seconds: float, why: str) -> None:
    """Let real time pass as ``let_pass`` does, and the event loop run meanwhile."""
    assert why
    await asyncio.sleep(seconds)
