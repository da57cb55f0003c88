"""Metrics pages of many simulated machines from one process, each made by the real exporter.

    python -m tests.gpuwatch.fleet.nodes MACHINES GPUS SECONDS

prints one address per line, reads the GPUs every SECONDS, and serves until SIGTERM.  Fifty daemons would need gigabytes, so
all machines share the readings of a few scenes.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from annotate.evidence import Device, Lane, PowerRecord, ProcessList, Reading, signals
from gpuwatch.clock import MonotonicClock
from gpuwatch.config import settings as config
from gpuwatch.exporter.collector import DaemonFigures
from gpuwatch.exporter.exporter import Exporter
from gpuwatch.interfaces import Sweep, WatchedGpu
from gpuwatch.sources.simulated import Simulated
from tests.gpuwatch.fleet.warehouse import judged

SCENES = ("steady-copy", "steady-gemm", "large-gemm", "neighbour", "thermal", "idle", "attention", "convolution")
_PERIODS_NS = {Lane.FAST: 50_000_000, Lane.SLOW: 10_000_000_000}
_STORE = {
    "readings_bytes": 1 << 30, "ledger_bytes": 1 << 24, "budget_bytes": 2 << 30, "rows_count": 10_000, "dropped_count": 0,
    "dropped_segments_count": 0, "set_aside_count": 0, "queued_count": 0, "disk_full": False,
}  # fmt: skip


@dataclass
class Node:
    """One machine, with the interface that the exporter needs."""

    number: int
    devices: tuple[Device, ...]
    source_name: str = "simulated"
    simulated: bool = True
    looked: bool = True
    absence: str | None = None

    def watched(self) -> tuple[WatchedGpu, ...]:
        supported = dict.fromkeys((*signals(Lane.FAST), *signals(Lane.SLOW)), True)
        return tuple(WatchedGpu(device, i, None, _PERIODS_NS, supported) for i, device in enumerate(self.devices))

    def rare(self, uuid: str) -> None:
        """Return None, because no test here queries rare series."""

    def device(self, uuid: str) -> Device | None:
        return next((device for device in self.devices if device.uuid == uuid), None)


def _sweeps(source: Simulated, uuid: str) -> Iterator[tuple[Lane, Reading | ProcessList | PowerRecord]]:
    yield Lane.FAST, source.read(uuid, Lane.FAST, signals(Lane.FAST))
    yield Lane.SLOW, source.read(uuid, Lane.SLOW, signals(Lane.SLOW))
    yield Lane.PROCESSES, source.read_process_list(uuid)
    yield Lane.POWER, source.power_record(uuid)


def main(machines_count: int, gpus_count: int, period_s: float) -> None:
    clock = MonotonicClock()
    # After a minute caps and temperatures are constant, so that servers agree at different moments.
    source = Simulated(",".join(SCENES), clock, epoch_ns=clock.now_ns() - 60_000_000_000)
    scenes = [device for device in source.devices() if device.parent_uuid is None]
    settings = config.load({"listen": "127.0.0.1:0"}, environment={"HOME": "/"})
    daemon = DaemonFigures(store=lambda: _STORE, in_hand_count=lambda: 0, clients_count=lambda: 0)
    nodes: list[tuple[Node, Exporter]] = []
    for number in range(machines_count):
        of_node = [scenes[i % len(scenes)] for i in range(gpus_count)]
        node = Node(number, tuple(replace(device, uuid=f"GPU-{number:04d}-{i}") for i, device in enumerate(of_node)))
        exporter = Exporter(settings, node.device)
        exporter.start(node, daemon, lambda: True)
        nodes.append((node, exporter))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    runs = itertools.cycle([judged("steady-copy"), judged("steady-copy"), judged("steady-copy"), judged("neighbour")])
    for _, exporter in nodes:
        print(exporter.url, flush=True)
    while not stop.wait(period_s):
        run = next(runs)
        for scene in scenes:
            for lane, observed in _sweeps(source, scene.uuid):
                for node, exporter in nodes:
                    for i in range(scenes.index(scene), gpus_count, len(scenes)):
                        uuid = node.devices[i].uuid
                        exporter.tallies.take(Sweep(uuid, lane, observed.at_ns, 100_000, 0, replace(observed, uuid=uuid)))
        for _, exporter in nodes:
            exporter.outcomes.judged(run, 0.05)
    for _, exporter in nodes:
        exporter.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
