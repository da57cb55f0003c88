"""A daemon on a simulated GPU whose fast reads hang while FILE exists: ``python -m tests.systemd.hanging FILE daemon …``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from annotate.evidence import Lane, Reading
from gpuwatch import cli
from gpuwatch.daemon import source_keeper
from gpuwatch.interfaces import Clock
from gpuwatch.sources.simulated import Simulated


class Hanging(Simulated):
    def __init__(self, flag: Path, clock: Clock) -> None:
        super().__init__("steady-copy", clock)
        self._flag = flag

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        while lane is Lane.FAST and self._flag.exists():
            threading.Event().wait(0.02)
        return super().read(uuid, lane, names)


if __name__ == "__main__":
    flag = Path(sys.argv[1])
    setattr(source_keeper, "open_source", lambda _, clock: Hanging(flag, clock))  # noqa: B010 - the daemon has no option for a hanging driver
    sys.exit(cli.main(sys.argv[2:]))
