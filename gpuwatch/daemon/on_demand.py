"""The daemon that a window starts: ``python -m gpuwatch.daemon.on_demand --NAME=VALUE …``.

As ``gpuwatch daemon --on-demand``, without the imports of the command line, for which the window would wait.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from gpuwatch.client.launch import say
from gpuwatch.config.settings import SYSTEM_SOCKET, load
from gpuwatch.daemon import process
from gpuwatch.errors import GpuwatchError


def main(arguments: Sequence[str]) -> int:
    """Run until no client is left; ``arguments`` are ``Settings.flags``.  Returns only where no daemon is needed, or can be."""
    flags = dict(each.removeprefix("--").split("=", 1) for each in arguments)

    def run() -> None:
        settings = load({name.replace("-", "_"): value for name, value in flags.items()})
        process.main(settings, code_of=_code_of, on_demand=True, shared=settings.socket == SYSTEM_SOCKET)

    return _code_of(run)


def _code_of(work: Callable[[], None]) -> int:
    """Do the work, and return 1 for what was raised on purpose, said in one line; the window that waits quotes it."""
    try:
        work()
    except (GpuwatchError, OSError) as error:
        say(" ".join(str(error).split()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
