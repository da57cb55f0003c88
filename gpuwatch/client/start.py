"""The daemon, started before it is needed."""

from __future__ import annotations

import contextlib

from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import GpuwatchError


def start(settings: Settings | None = None) -> None:
    """Have the daemon run, so that the next window opens in a millisecond: for the top of a script, before any warm-up.

    It waits until the daemon answers, and returns at once where one runs.  It raises nothing: what is wrong is the
    reason of the windows' verdicts.
    """
    with contextlib.suppress(GpuwatchError, OSError):
        connect(settings or load()).close()
