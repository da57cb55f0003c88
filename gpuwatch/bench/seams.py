"""The outside world of a benchmark: everything a test replaces to run one without a GPU, a daemon and the time it takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TextIO

from gpuwatch import clock
from gpuwatch.bench import board, cache
from gpuwatch.bench.attempt import OpenWindow
from gpuwatch.window import window


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """``window`` takes what ``gpuwatch.window`` takes; ``stream`` is where progress is shown, None for standard error."""

    now_ns: Callable[[], int] = clock.now_ns
    window: Callable[..., AbstractContextManager[OpenWindow]] = window
    board: Callable[[], board.Board | None] = board.here
    flush: Callable[[int | None], tuple[Callable[[], None], int]] = cache.flush_of
    stream: TextIO | None = None
