"""A program that prints the readings of nvitop, gpustat or gpuwatch's source in one form, on the mock driver in tests."""

from __future__ import annotations

import json
import sys
from typing import Any

from annotate.evidence import Lane, signals


def nvitop() -> list[dict[str, Any]]:
    from nvitop import Device  # type: ignore[import-untyped]  # as below

    found = []
    for device in Device.all():
        shown = device.as_snapshot()
        found.append({
            "uuid": shown.uuid, "name": shown.name, "sm_clock_mhz": shown.clock_infos.sm, "mem_clock_mhz": shown.clock_infos.memory,
            "power_w": shown.power_usage / 1000, "power_limit_w": shown.power_limit / 1000, "temperature_c": shown.temperature,
            "utilization_percent": shown.gpu_utilization, "mem_utilization_percent": shown.memory_utilization,
            "memory_used_bytes": shown.memory_used, "memory_total_bytes": shown.memory_total,
            "processes": sorted([pid, process.gpu_memory()] for pid, process in device.processes().items()),
        })  # fmt: skip
    return found


def gpustat() -> list[dict[str, Any]]:
    import gpustat  # type: ignore[import-untyped]  # gpustat has neither stubs nor annotations

    return [
        {
            "uuid": gpu.uuid, "name": gpu.name, "power_w": gpu.power_draw, "power_limit_w": gpu.power_limit,
            "temperature_c": gpu.temperature, "utilization_percent": gpu.utilization,
            "memory_used_bytes": gpu.memory_used << 20, "memory_total_bytes": gpu.memory_total << 20,
            "processes": sorted([process["pid"], process["gpu_memory_usage"] << 20] for process in gpu.processes),
        }
        for gpu in gpustat.new_query()
    ]  # fmt: skip


def gpuwatch() -> list[dict[str, Any]]:
    from gpuwatch.sources.nvml import Nvml

    source = Nvml()
    found = []
    for device in source.devices():
        reading = source.read(device.uuid, Lane.FAST, signals(Lane.FAST))
        process_list = source.read_process_list(device.uuid)
        found.append({
            "uuid": device.uuid, "name": device.name, "sm_clock_mhz": reading.sm_clock_mhz,
            "mem_clock_mhz": reading.mem_clock_mhz, "power_w": reading.power_average_w, "power_limit_w": device.power_limit_w,
            "temperature_c": reading.temperature_c, "utilization_percent": _percent(reading.utilization_ratio),
            "mem_utilization_percent": _percent(reading.mem_utilization_ratio),
            # Other tools show the programs' memory; a reading includes the driver's reserve, whose size is a fact of the device.
            "memory_used_bytes": (reading.memory_used_bytes or 0) - (device.memory_reserved_bytes or 0),
            "memory_total_bytes": device.memory_total_bytes,
            "processes": sorted([process.pid, process.memory_bytes] for process in process_list.processes if process.listed),
        })  # fmt: skip
    source.close()
    return found


def _percent(ratio: float | None) -> int | None:
    return None if ratio is None else round(100 * ratio)


if __name__ == "__main__":
    print(json.dumps({"nvitop": nvitop, "gpustat": gpustat, "gpuwatch": gpuwatch}[sys.argv[1]]()))
