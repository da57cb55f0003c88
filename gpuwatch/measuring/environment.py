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
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import GpuwatchError
from gpuwatch.measuring import cache, canary_record, torch_device
from gpuwatch.measuring.attempt import MeasuredWindow


def start_daemon(settings: Settings | None) -> None:
    """Start the daemon if there is none, so that opening the window takes the milliseconds a warm GPU stays warm for."""
    # The window reports what is wrong.
    with contextlib.suppress(GpuwatchError, OSError):
        connect(settings or load()).close()


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEnvironment:
    """The functions through which bench() reaches clock, daemon, GPU and terminal.

    ``window`` takes what ``gpuwatch.window`` takes; ``stream`` shows progress, None for standard error.
    """

    now_ns: Callable[[], int] = clock.now_ns
    window: Callable[..., AbstractContextManager[MeasuredWindow]] = window
    start_daemon: Callable[[Settings | None], None] = start_daemon
    gpu: Callable[[], torch_device.TorchDevice | None] = torch_device.current_device
    canary: Callable[[str, Settings | None], canary_record.CanaryRun | None] = canary_record.run_canary
    flush: Callable[[int | None], tuple[Callable[[], None], int]] = cache.make_flush
    stream: TextIO | None = None
