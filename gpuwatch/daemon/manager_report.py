"""The daemon's reports to its service manager: how it goes, and that it lives."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from gpuwatch.daemon.gpu_overview import GpuOverview
from gpuwatch.daemon.windows import Windows
from gpuwatch.systemd.notify import Manager

_log = logging.getLogger("gpuwatch.daemon.daemon")

REPORT_S = 10.0  # how often the service manager is told at least


class ManagerReport:
    """Feeds the watchdog only while every GPU that is not lost is being read.

    The event loop itself does so: where it hangs, the watchdog starves as well.
    """

    def __init__(self, manager: Manager, overview: GpuOverview, windows: Windows, idle_period_ns: Callable[[], int]) -> None:
        self._manager = manager
        self._overview = overview
        self._windows = windows
        self._idle_period_ns = idle_period_ns

    async def run(self) -> None:
        """Report until cancelled."""
        if not self._manager.listens:
            return
        within_s = min(REPORT_S, (self._manager.watchdog_s or math.inf) / 2)
        while True:
            await asyncio.sleep(within_s)
            silent = self._overview.silent(within_s, self._idle_period_ns())
            if silent:
                _log.error("no reading for %g s of %s", within_s, ", ".join(silent))
            status = f"no reading of {', '.join(silent)}; " if silent else ""
            text = f"{status}{self._overview.summary()}; {self._windows.tracked_count} windows"
            self._manager.status(text, alive=not silent)
