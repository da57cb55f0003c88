"""A program that prints the answers of NVIDIA's own binding as JSON.

The program asks all questions in ``ASKED`` about the GPUs in its arguments, and UUID and power of the others.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pynvml as N  # noqa: N812 - the usual name

Ask = Callable[[Any], Any]


def members(structure: Any) -> dict[str, Any]:
    return {name: getattr(structure, name) for name, *_ in structure._fields_}


def processes(function: str) -> Ask:
    def ask(handle: Any) -> list[dict[str, Any]]:
        return [dict(vars(entry)) for entry in getattr(N, function)(handle)]

    return ask


def raw_processes(version: str, structure: Any) -> Ask:
    """Return a function that reads the process list in a version that the binding no longer calls."""

    def ask(handle: Any) -> list[dict[str, Any]]:
        ask_for = N._nvmlGetFunctionPointer(f"nvmlDeviceGetComputeRunningProcesses{version}")
        room, found = ctypes.c_uint(0), None
        if ask_for(handle, ctypes.byref(room), found) != N.NVML_ERROR_INSUFFICIENT_SIZE:
            return []
        found = (structure * room.value)()
        N._nvmlCheckReturn(ask_for(handle, ctypes.byref(room), found))
        return [members(entry) for entry in found]

    return ask


class ProcessV1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


def details(handle: Any) -> list[dict[str, Any]]:
    found = N.nvmlDeviceGetRunningProcessDetailList(handle, N.nvmlProcessDetailList_v1, 0)
    return [members(entry) if hasattr(entry, "_fields_") else dict(vars(entry)) for entry in found]


def fields(handle: Any) -> dict[str, Any]:
    asked = (74, 76, 82, 83, 3, 4, 94, 38, 45, 52, 59, 138, 139, 142, 143, 144, 145, 185, 186, 269, 270, 271, 251)
    members_of = {0: "dVal", 1: "uiVal", 3: "ullVal"}
    return {
        str(entry.fieldId): {
            "code": entry.nvmlReturn, "stamp_us": entry.timestamp, "kind": entry.valueType,
            "value": getattr(entry.value, members_of[entry.valueType]),
        }
        for entry in N.nvmlDeviceGetFieldValues(handle, list(asked))
    }  # fmt: skip


def samples(handle: Any) -> list[tuple[int, int]]:
    _, found = N.nvmlDeviceGetSamples(handle, N.NVML_TOTAL_POWER_SAMPLES, 0)
    return [(sample.timeStamp, sample.sampleValue.uiVal) for sample in found]


def shares(handle: Any) -> list[dict[str, Any]]:
    return [members(sample) for sample in N.nvmlDeviceGetProcessUtilization(handle, 0)]


def gpm(handle: Any) -> list[float]:
    first, second = N.nvmlGpmSampleAlloc(), N.nvmlGpmSampleAlloc()
    request = N.c_nvmlGpmMetricsGet_t(version=N.NVML_GPM_METRICS_GET_VERSION, numMetrics=6, sample1=first, sample2=second)
    for metric, number in zip(request.metrics, (2, 3, 5, 10, 20, 21), strict=False):
        metric.metricId = number
    N.nvmlGpmSampleGet(handle, first)
    time.sleep(0.11)  # a metric is the mean between two samples
    N.nvmlGpmSampleGet(handle, second)
    N.nvmlGpmMetricsGet(request)
    N.nvmlGpmSampleFree(first)
    N.nvmlGpmSampleFree(second)
    return [metric.value for metric in request.metrics[:6]]


def instances(handle: Any) -> list[dict[str, Any]]:
    found = []
    for slot in range(N.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = N.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
        except N.NVMLError_NotFound:
            continue
        found.append({
            "uuid": N.nvmlDeviceGetUUID(instance), "name": N.nvmlDeviceGetName(instance),
            "instance": N.nvmlDeviceGetGpuInstanceId(instance), "compute": N.nvmlDeviceGetComputeInstanceId(instance),
            "memory": members(N.nvmlDeviceGetMemoryInfo(instance)), "cores": N.nvmlDeviceGetNumGpuCores(instance),
            "board": N.nvmlDeviceGetUUID(N.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)),
            "mig": int(N.nvmlDeviceIsMigDeviceHandle(instance).value),
            "pids": [entry.pid for entry in N.nvmlDeviceGetComputeRunningProcesses(instance)],
        })  # fmt: skip
    return found


def violation(policy: int) -> Ask:
    return lambda handle: N.nvmlDeviceGetViolationStatus(handle, policy).violationTime


ASKED: dict[str, Ask] = {
    "uuid": N.nvmlDeviceGetUUID,
    "name": N.nvmlDeviceGetName,
    "serial": N.nvmlDeviceGetSerial,
    "vbios": N.nvmlDeviceGetVbiosVersion,
    "index": N.nvmlDeviceGetIndex,
    "pci": lambda handle: members(N.nvmlDeviceGetPciInfo(handle)),
    "architecture": N.nvmlDeviceGetArchitecture,
    "capability": N.nvmlDeviceGetCudaComputeCapability,
    "cores": N.nvmlDeviceGetNumGpuCores,
    "bus_bits": N.nvmlDeviceGetMemoryBusWidth,
    "numa": N.nvmlDeviceGetNumaNodeId,
    "virtualization": N.nvmlDeviceGetVirtualizationMode,
    "clock_max": lambda handle: [N.nvmlDeviceGetMaxClockInfo(handle, kind) for kind in range(4)],
    "clock": lambda handle: [N.nvmlDeviceGetClockInfo(handle, kind) for kind in range(4)],
    "application_clock": lambda handle: N.nvmlDeviceGetApplicationsClock(handle, N.NVML_CLOCK_SM),
    "default_application_clock": lambda handle: N.nvmlDeviceGetDefaultApplicationsClock(handle, N.NVML_CLOCK_SM),
    "power": N.nvmlDeviceGetPowerUsage,
    "power_limit": N.nvmlDeviceGetEnforcedPowerLimit,
    "power_limit_default": N.nvmlDeviceGetPowerManagementDefaultLimit,
    "power_limits": N.nvmlDeviceGetPowerManagementLimitConstraints,
    "temperature": lambda handle: N.nvmlDeviceGetTemperature(handle, 0),
    "temperature_v": lambda handle: N.nvmlDeviceGetTemperatureV(handle, 0),
    "thresholds": lambda handle: [N.nvmlDeviceGetTemperatureThreshold(handle, kind) for kind in range(2)],
    "margin": N.nvmlDeviceGetMarginTemperature,
    "reasons": N.nvmlDeviceGetCurrentClocksEventReasons,
    "throttle": N.nvmlDeviceGetCurrentClocksThrottleReasons,
    "supported_reasons": N.nvmlDeviceGetSupportedClocksEventReasons,
    "utilization": lambda handle: members(N.nvmlDeviceGetUtilizationRates(handle)),
    "memory": lambda handle: members(N.nvmlDeviceGetMemoryInfo(handle)),
    "memory_v2": lambda handle: members(N.nvmlDeviceGetMemoryInfo(handle, N.nvmlMemory_v2)),
    "memory_v3": lambda handle: members(N.nvmlDeviceGetMemoryInfo(handle, 3 << 24 | 40)),
    "bar1": lambda handle: members(N.nvmlDeviceGetBAR1MemoryInfo(handle)),
    "energy": N.nvmlDeviceGetTotalEnergyConsumption,
    "ecc": lambda handle: [N.nvmlDeviceGetTotalEccErrors(handle, kind, 0) for kind in range(2)],
    "remapped": N.nvmlDeviceGetRemappedRows,
    "replays": N.nvmlDeviceGetPcieReplayCounter,
    "pcie": lambda handle: [N.nvmlDeviceGetCurrPcieLinkGeneration(handle), N.nvmlDeviceGetCurrPcieLinkWidth(handle)],
    "pcie_max": lambda handle: [N.nvmlDeviceGetMaxPcieLinkGeneration(handle), N.nvmlDeviceGetMaxPcieLinkWidth(handle)],
    "pcie_flow": lambda handle: [N.nvmlDeviceGetPcieThroughput(handle, kind) for kind in range(2)],
    "nvlink": lambda handle: [N.nvmlDeviceGetNvLinkState(handle, link) for link in range(18)],
    "nvlink_beyond": lambda handle: N.nvmlDeviceGetNvLinkState(handle, 18),
    "pstate": N.nvmlDeviceGetPerformanceState,
    "persistence": N.nvmlDeviceGetPersistenceMode,
    "ecc_mode": N.nvmlDeviceGetEccMode,
    "mig_mode": N.nvmlDeviceGetMigMode,
    "compute_mode": N.nvmlDeviceGetComputeMode,
    "fan": N.nvmlDeviceGetFanSpeed,
    "coders": lambda handle: [N.nvmlDeviceGetEncoderUtilization(handle), N.nvmlDeviceGetDecoderUtilization(handle)],
    "violation_power": violation(0),
    "violation_thermal": violation(1),
    "violation_sync_boost": violation(2),
    "violation_board": violation(3),
    "fields": fields,
    "samples": samples,
    "compute": processes("nvmlDeviceGetComputeRunningProcesses"),
    "compute_v1": raw_processes("", ProcessV1),
    "compute_v2": raw_processes("_v2", N.c_nvmlProcessInfo_v2_t),
    "graphics": processes("nvmlDeviceGetGraphicsRunningProcesses"),
    "mps": processes("nvmlDeviceGetMPSComputeRunningProcesses"),
    "details": details,
    "shares": shares,
    "event_types": N.nvmlDeviceGetSupportedEventTypes,
    "gpm_supported": lambda handle: N.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice,
    "gpm": gpm,
    "instances": instances,
}


def answered(ask: Ask, *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except N.NVMLError as error:
        return {"error": error.value, "text": str(error)}


def plain(value: Any) -> Any:
    """Convert bytes and ctypes' values to JSON's types."""
    return value.decode() if isinstance(value, bytes) else str(value)


def main() -> None:
    N.nvmlInit()
    boards = []
    # The GPM needs a pause between two samples, so only the boards in the arguments are queried completely.
    for index in range(N.nvmlDeviceGetCount()):
        handle = answered(N.nvmlDeviceGetHandleByIndex, index)
        if isinstance(handle, dict):
            boards.append(handle)
            continue
        wanted = ASKED if index in map(int, sys.argv[1:]) else {"uuid": ASKED["uuid"], "power": ASKED["power"]}
        boards.append({name: answered(ask, handle) for name, ask in wanted.items()})
    system = {
        "driver": N.nvmlSystemGetDriverVersion(), "nvml": N.nvmlSystemGetNVMLVersion(), "cuda": N.nvmlSystemGetCudaDriverVersion(),
    }  # fmt: skip
    N.nvmlShutdown()
    print(json.dumps({"system": system, "boards": boards, "after": answered(N.nvmlDeviceGetCount)}, default=plain))


if __name__ == "__main__":
    main()
