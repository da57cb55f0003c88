"""The outside world of a benchmark: everything a test replaces to run one without a GPU, a daemon and the time it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TextIO

from gpuwatch import clock
from gpuwatch.client.connection import connect
from gpuwatch.client.window import window
from gpuwatch.config import settings as config
from gpuwatch.config.settings import Settings
from gpuwatch.errors import GpuwatchError
from gpuwatch.measuring import cache, canary_run, torch_device
from gpuwatch.measuring.attempt import MeasuredWindow


def ready(settings: Settings | None) -> None:
    """Start the daemon if there is none, so that opening the window takes the milliseconds a warm GPU stays warm for."""
    # What is wrong with it, the window will say.
    with contextlib.suppress(GpuwatchError, OSError):
        connect(settings or config.load()).close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """``window`` takes what ``gpuwatch.window`` takes; ``stream`` is where progress is shown, None for standard error."""

    now_ns: Callable[[], int] = clock.now_ns
    window: Callable[..., AbstractContextManager[MeasuredWindow]] = window
    ready: Callable[[Settings | None], None] = ready
    board: Callable[[], torch_device.TorchDevice | None] = torch_device.here
    canary: Callable[[str, Settings | None], canary_run.Sung | None] = canary_run.sing
    flush: Callable[[int | None], tuple[Callable[[], None], int]] = cache.flush_of
    stream: TextIO | None = None
