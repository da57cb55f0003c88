"""The daemon's overview of its GPUs, for screens, for the metrics page and for the service manager."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from annotate.evidence import SIGNALS, Lane
from gpuwatch import clock
from gpuwatch.daemon.watched_gpus import WatchedGpus
from gpuwatch.daemon.windows import Windows
from gpuwatch.interfaces import RareReading, WatchedGpu
from gpuwatch.systemd.notify import Manager
from gpuwatch.view.snapshot import WatchedMachine


class GpuOverview:
    """A summary of the watched GPUs from memory: no method reads a GPU."""

    def __init__(self, gpus: WatchedGpus) -> None:
        self._gpus = gpus

    @property
    def source_name(self) -> str:
        return self._gpus.source.name

    @property
    def simulated(self) -> bool:
        return self._gpus.source.is_simulated

    @property
    def looked(self) -> bool:
        return self._gpus.source.has_looked

    @property
    def absence(self) -> str | None:
        return self._gpus.source.absence

    def watched(self) -> tuple[WatchedGpu, ...]:
        """Return every GPU that the source listed, including lost ones, in the source's order."""
        return tuple(self._watched(position, uuid) for position, uuid in enumerate(self._gpus.devices))

    def rare(self, uuid: str) -> RareReading | None:
        """Return the latest reading made only for the metrics page, or None; each call keeps the reader running."""
        return self._gpus.rare.latest(uuid)

    def machine(self) -> WatchedMachine:
        """Return the GPU data that screens show."""
        return WatchedMachine(
            source=self.source_name,
            is_simulated=self.simulated,
            absence=self.absence,
            unanswered=self._gpus.source.unanswered,
            gpus=self.watched(),
            latest=self._gpus.latest.by_lane(),
        )

    def silent(self, within_s: float, idle_period_ns: int) -> tuple[str, ...]:
        """Return GPUs that are not lost but have an outdated fast-lane reading: their samplers hang."""
        oldest_ns = clock.now_ns() - int(max(within_s * 1e9, 2 * idle_period_ns))
        latest = self._gpus.latest.by_lane()
        last = {uuid: latest.get((uuid, Lane.FAST)) for uuid, sampler in self._gpus.samplers.items() if sampler.lost is None}
        return tuple(uuid for uuid, sweep in last.items() if sweep is not None and sweep.observed.at_ns < oldest_ns)

    def summary(self) -> str:
        """Return one line for people: GPUs, the lowest real sampling rate, and lost, unmeasured and unanswered GPUs."""
        if self.absence is not None:
            return f"no GPU to watch: {self.absence}"
        if not self.looked:
            return "the driver has not answered yet"
        samplers, devices = self._gpus.samplers, self._gpus.devices
        lost = {uuid: sampler.lost for uuid, sampler in samplers.items() if sampler.lost is not None}
        live = [uuid for uuid in samplers if uuid not in lost]
        names = Counter(devices[uuid].name for uuid in live if uuid in devices)
        rates_hz = [rate_hz for uuid in live if (rate_hz := samplers[uuid].rate_hz)]  # no rate before the second reading
        parts = [", ".join(f"{count} × {name}" for name, count in names.items()) or "no GPU answers"]
        if rates_hz:
            parts[0] += f" at {min(rates_hz):.1f} Hz" if len(rates_hz) == 1 else f" at {min(rates_hz):.1f} Hz or more"
        parts += [f"{uuid} lost: {why}" for uuid, why in lost.items()]
        unmeasured = self._unmeasured()
        parts += [f"not yet measured: {', '.join(unmeasured)}"] if unmeasured else []
        parts += [f"{gpu} (listed, but not answering)" for gpu in self._gpus.source.unanswered]
        return "; ".join(parts)

    def status(self) -> dict[str, Any]:
        """Return the watched GPUs as JSON values."""
        devices = self._gpus.devices
        return {
            "source": self.source_name,
            "simulated": self.simulated,
            "absence": self.absence,
            "epoch_ns": self._gpus.source.epoch_ns,
            "gpus": [
                {"uuid": uuid, "name": devices[uuid].name, "driver_version": devices[uuid].driver_version, **sampler.status()}
                for uuid, sampler in self._gpus.samplers.items()
            ],
            "unanswered": list(self._gpus.source.unanswered),
            "unmeasured": self._unmeasured(),
        }

    def _unmeasured(self) -> list[str]:
        samplers = self._gpus.samplers
        settled = {uuid for uuid, sampler in samplers.items() if sampler.plan.is_measured or sampler.lost is not None}
        return [uuid for uuid in self._gpus.devices if uuid not in settled]

    def _watched(self, position: int, uuid: str) -> WatchedGpu:
        device, sampler = self._gpus.devices[uuid], self._gpus.samplers.get(uuid)
        if sampler is None:
            return WatchedGpu(device, position, "no answer since the daemon started", {}, {})
        plan = sampler.plan
        supported = {name: name not in plan.unanswered for name in SIGNALS} if plan.is_measured else {}
        return WatchedGpu(device, position, sampler.lost, sampler.period_ns, supported)


_log = logging.getLogger("gpuwatch.daemon.daemon")

REPORT_S = 10.0  # the longest interval between two reports to the service manager


async def report_to_manager(
    manager: Manager, overview: GpuOverview, windows: Windows, idle_period_ns: Callable[[], int]
) -> None:
    """Report to the service manager until cancelled; feed its watchdog only while every GPU that is not lost is being read.

    This runs in the event loop: if the loop hangs, the watchdog gets no signal.
    """
    if not manager.listens:
        return
    within_s = min(REPORT_S, (manager.watchdog_s or math.inf) / 2)
    while True:
        await asyncio.sleep(within_s)
        silent = overview.silent(within_s, idle_period_ns())
        if silent:
            _log.error("no reading for %g s of %s", within_s, ", ".join(silent))
        status = f"no reading of {', '.join(silent)}; " if silent else ""
        manager.status(f"{status}{overview.summary()}; {windows.tracked_count} windows", alive=not silent)
