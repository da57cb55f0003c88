"""Entry point of the daemon that a window starts: ``on_demand_script.py``, or ``python -m gpuwatch.daemon.on_demand``.

This module equals ``gpuwatch daemon --on-demand`` without the command line's imports, for which the window would wait.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence

from gpuwatch.client.launch import say
from gpuwatch.config.settings import SYSTEM_SOCKET, load
from gpuwatch.errors import GpuwatchError
from gpuwatch.sources import DRIVER_KINDS, open_ahead


def main(arguments: Sequence[str]) -> int:
    """Run the daemon, which ends this process.  Return only if no daemon is needed or none can start.

    ``arguments`` are ``Settings.flags``.
    """
    flags = dict(each.removeprefix("--").split("=", 1) for each in arguments)
    gc.disable()  # until the daemon answers: what a start creates, the daemon keeps
    ready = leave_parent()

    def run() -> None:
        settings = load({name.replace("-", "_"): value for name, value in flags.items()})
        if settings.source in DRIVER_KINDS:
            open_ahead()
        from gpuwatch.daemon import process  # imported while the driver opens

        process.main(settings, code_of=_code_of, ready=ready, shared=settings.socket == SYSTEM_SOCKET)

    return _code_of(run)


def leave_parent() -> Callable[[], None]:
    """Fork, and detach the child from its parent; return a function that reports the daemon as ready.

    The original process exits with 0 after that report, or with 1 if the daemon dies first.
    """
    here, there = os.pipe()
    if os.fork():
        os.close(there)
        os._exit(0 if os.read(here, 1) else 1)
    os.close(here)
    os.setsid()
    _undo_inheritance()

    def ready() -> None:
        with contextlib.suppress(OSError):
            os.write(there, b"r")
            os.close(there)

    return ready


def _undo_inheritance() -> None:
    """Undo the state inherited from the starting benchmark: CPU affinity, scheduling policy, umask, signal settings."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, the judge's worker would end without an exit code


def _code_of(work: Callable[[], None]) -> int:
    """Run ``work`` and return 0; print an expected error in one line, which the waiting window quotes, and return 1."""
    try:
        work()
    except (GpuwatchError, OSError) as error:
        say(" ".join(str(error).split()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
