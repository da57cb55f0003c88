"""Waiting in tests: for a condition with a deadline, and for real time with the reason.

A deadline only ends a failed test.  Passing tests stay far below their deadlines even on a busy machine.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

LONGEST_PAUSE_S = 0.5  # pause between two slow evaluations
PATIENCE_S = 100.0  # below pytest's time limit, so that the failure names the missing condition

_T = TypeVar("_T")


def wait_until(
    condition: Callable[[], _T],
    *,
    what: str | Callable[[], str] = "the condition",
    deadline_s: float = PATIENCE_S,
    every_s: float = 0.01,
) -> _T:
    """Return the first true value of a condition.

    Raises AssertionError: when the condition stays false until the deadline.

    The message ends with ``what``, a text or a function's result.
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
    """Return the first true value of a condition while the event loop runs; ``pause`` may be a pilot's.

    Raises AssertionError: as ``wait_until``.
    """
    until_s = (begun_s := time.monotonic()) + deadline_s
    while not (found := condition()):
        assert time.monotonic() < until_s, _never(what, deadline_s)
        await pause(_pause_s(begun_s, every_s))
        begun_s = time.monotonic()
    return found


def _pause_s(begun_s: float, every_s: float) -> float:
    """Return the pause after an evaluation: nineteen times its duration, at most LONGEST_PAUSE_S, and at least ``every_s``."""
    return max(every_s, min(19.0 * (time.monotonic() - begun_s), LONGEST_PAUSE_S))


def _never(what: str | Callable[[], str], deadline_s: float) -> str:
    return f"not within {deadline_s:g} s: {what if isinstance(what, str) else what()}"


def sample_for(seconds: float) -> None:
    """Let daemons sample for this time, because windows and their readings need real time."""
    threading.Event().wait(seconds)


def let_pass(seconds: float, why: str) -> None:
    """Let real time pass for the given reason, if no condition shows that enough has passed."""
    assert why
    threading.Event().wait(seconds)


async def let_pass_async(seconds: float, why: str) -> None:
    """Let real time pass as ``let_pass`` does while the event loop runs."""
    assert why
    await asyncio.sleep(seconds)
