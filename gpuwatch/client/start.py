"""The start of the daemon, and of a warm-up, before a window."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable

from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import GpuwatchError
from gpuwatch.wire.messages import FactValue


def start(settings: Settings | None = None) -> None:
    """Start the daemon, so that the next window opens fast.

    Call this function at the top of a script, after its imports and before any warm-up.  The call waits until the daemon
    answers, and meanwhile prepares GPU times.  If the process already uses a GPU, it then holds up to 64 MiB of GPU memory.

    Args:
        settings: Settings to use instead of the environment's and the files'.

    Raises nothing.  If no daemon can start, the verdicts of the windows give the reason.

    Example:
        >>> gpuwatch.start()
    """
    with contextlib.suppress(GpuwatchError, OSError):
        connect(settings or load(), meanwhile=_prepare).close()


def _prepare() -> None:
    from gpuwatch.client.marks import prepare_gpu
    from gpuwatch.client.testimony import spared

    with spared("preparing to stamp the true clock"):
        prepare_gpu()


def warm_up(step: Callable[[], object], settings: Settings | None) -> dict[str, FactValue]:
    """Start the daemon, run the step's warm-up, and return the facts of the warm-up.  Exceptions of the step propagate."""
    start(settings)
    # Imported by name: the import contract puts ``measuring`` above ``client``, and only a warm-up needs the module.
    warmed: dict[str, FactValue] = importlib.import_module("gpuwatch.measuring.warm_up").warm_until_steady(step)
    return warmed
