"""A mock benchmark: it adds itself to the process lists of GPUs in the scene, makes the GPUs busy, and leaves."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.fake_nvml.scene import Client, Gpu, Scene

_BUSY = {
    "sm_clock_mhz": 1980, "power_mw": 560_000, "power_average_mw": 560_000, "temperature_c": 58, "event_reasons_mask": 0,
    "utilization_percent": 100, "mem_utilization_percent": 40, "sm_activity_percent": 99, "memory_temperature_c": 66,
}  # fmt: skip
_IDLE = {
    "sm_clock_mhz": 345, "power_mw": 76_000, "power_average_mw": 76_000, "temperature_c": 40, "event_reasons_mask": 1,
    "utilization_percent": 0, "mem_utilization_percent": 0, "sm_activity_percent": 0, "memory_temperature_c": 40,
}  # fmt: skip


def work_on(gpu: Gpu, pid: int) -> None:
    gpu.clients = [*gpu.clients, Client(pid=pid, memory_bytes=4 << 30, sm_percent=99, mem_percent=40)]
    gpu.set(**_BUSY)
    gpu.moves("energy_mj", _BUSY["power_mw"])


def leave(gpu: Gpu, pid: int) -> None:
    gpu.clients = [client for client in gpu.clients if client.pid != pid]
    gpu.set(**_IDLE)
    gpu.moves("energy_mj", _IDLE["power_mw"])


def main() -> None:
    """Run with the arguments ``SCENE SECONDS GPU…``."""
    scene, seconds, pid = Scene(Path(sys.argv[1])), float(sys.argv[2]), os.getpid()
    gpus = [scene.gpus[int(index)] for index in sys.argv[3:]]
    for gpu in gpus:
        work_on(gpu, pid)
    time.sleep(seconds)
    for gpu in gpus:
        leave(gpu, pid)


if __name__ == "__main__":
    main()
