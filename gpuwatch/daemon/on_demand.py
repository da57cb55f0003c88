"""Entry point of the daemon that a window starts: ``python -m gpuwatch.daemon.on_demand --NAME=VALUE …``.

This module equals ``gpuwatch daemon --on-demand`` without the command line's imports, for which the window would wait.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from gpuwatch.client.launch import say
from gpuwatch.config.settings import SYSTEM_SOCKET, load
from gpuwatch.daemon import process
from gpuwatch.errors import GpuwatchError


def main(arguments: Sequence[str]) -> int:
    """Run the daemon, which ends this process.  Return only if no daemon is needed or none can start.

    ``arguments`` are ``Settings.flags``.
    """
    flags = dict(each.removeprefix("--").split("=", 1) for each in arguments)

    def run() -> None:
        settings = load({name.replace("-", "_"): value for name, value in flags.items()})
        process.main(settings, code_of=_code_of, on_demand=True, shared=settings.socket == SYSTEM_SOCKET)

    return _code_of(run)


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
