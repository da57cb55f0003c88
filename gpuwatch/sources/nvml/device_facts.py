"""Who the GPUs are: every fact of a device that does not change from reading to reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from annotate.evidence import Device
from gpuwatch.errors import SourceGoneError
from gpuwatch.host.processes import numa_node
from gpuwatch.sources.nvml.binding import Api, Handle, asked, error_text, lost, read_text, too_old, treat

_ARCHITECTURES: Mapping[int, str] = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell",
    13: "Rubin",
}  # fmt: skip
_COMPUTE_MODES: Mapping[int, str] = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_VIRTUALIZATION: Mapping[int, str] = {0: "none", 1: "pass-through", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}


@dataclass(frozen=True, slots=True)
class BoardHandles:
    """What to ask about a GPU or MIG instance: its own handle, and that of the board it lives on."""

    uuid: str
    handle: Handle
    board_handle: Handle
    parent_uuid: str | None = None
    instance_id: int | None = None  # GPU instance, of a MIG device


def count(api: Api) -> int:
    """How many GPUs the driver lists.  Raises SourceGoneError."""
    try:
        return int(api.nvmlDeviceGetCount())
    except api.NVMLError as error:
        treat(error)
        raise SourceGoneError(f"the driver does not list its GPUs: {error_text(error)}{too_old(error)}") from error


def at(api: Api, index: int) -> Iterator[BoardHandles]:
    """The GPU at this place of the driver's list, then its MIG instances.  Raises DeviceLostError, SourceGoneError."""
    try:
        handle = api.nvmlDeviceGetHandleByIndex(index)
        uuid = read_text(lambda: api.nvmlDeviceGetUUID(handle))
    except api.NVMLError as error:
        lost(error, f"GPU {index}")
    yield BoardHandles(uuid, handle, handle)
    mode = asked(api, "nvmlDeviceGetMigMode", handle, uuid=uuid)
    slots = asked(api, "nvmlDeviceGetMaxMigDeviceCount", handle, uuid=uuid) if mode and mode[0] else 0
    for slot in range(slots or 0):
        instance = asked(api, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot, uuid=uuid)
        instance_uuid = asked(api, "nvmlDeviceGetUUID", instance, uuid=uuid) if instance is not None else None
        if instance_uuid is not None:
            yield BoardHandles(
                instance_uuid, instance, handle, uuid, asked(api, "nvmlDeviceGetGpuInstanceId", instance, uuid=uuid)
            )


def board(api: Api, uuid: str) -> BoardHandles:
    """A GPU or MIG instance by its UUID, asked anew.  Raises DeviceLostError, SourceGoneError."""
    try:
        handle = api.nvmlDeviceGetHandleByUUID(uuid)
    except api.NVMLError as error:
        lost(error, uuid)
    parent = asked(api, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle, uuid=uuid) if uuid.startswith("MIG") else None
    if parent is None:
        return BoardHandles(uuid, handle, handle)
    parent_uuid = asked(api, "nvmlDeviceGetUUID", parent, uuid=uuid)
    return BoardHandles(uuid, handle, parent, parent_uuid, asked(api, "nvmlDeviceGetGpuInstanceId", handle, uuid=uuid))


def device(api: Api, of: BoardHandles) -> Device:
    """The facts of one GPU; for a MIG instance name, memory and cores are its own, limits and modes its board's."""

    def fact(function: str, *args: Any, own: bool = False) -> Any:
        return asked(api, function, of.handle if own else of.board_handle, *args, uuid=of.uuid)

    def watts(function: str) -> float | None:
        limit_mw = fact(function)
        return None if limit_mw is None else limit_mw / 1000

    pci = fact("nvmlDeviceGetPciInfo_v3")
    capability = fact("nvmlDeviceGetCudaComputeCapability")
    limits_mw = fact("nvmlDeviceGetPowerManagementLimitConstraints") or (None, None)
    memory = fact("nvmlDeviceGetMemoryInfo", own=True)
    # The second version of the call tells the driver's reserve apart; its number holds the structure's version and size.
    memory_apart = fact("nvmlDeviceGetMemoryInfo", api.nvmlMemory_v2, own=True)
    ecc, mig, persistence = fact("nvmlDeviceGetEccMode"), fact("nvmlDeviceGetMigMode"), fact("nvmlDeviceGetPersistenceMode")
    architecture, compute_mode = fact("nvmlDeviceGetArchitecture"), fact("nvmlDeviceGetComputeMode")
    virtualization = fact("nvmlDeviceGetVirtualizationMode")
    bus_id = read_text(lambda: pci.busId) if pci is not None else None
    node = fact("nvmlDeviceGetNumaNodeId")
    reasons = fact("nvmlDeviceGetSupportedClocksEventReasons")
    return Device(
        uuid=of.uuid,
        name=fact("nvmlDeviceGetName", own=True) or "unknown",
        pci_bus_id=bus_id,
        driver_version=asked(api, "nvmlSystemGetDriverVersion"),
        nvml_version=asked(api, "nvmlSystemGetNVMLVersion"),
        vbios_version=fact("nvmlDeviceGetVbiosVersion"),
        architecture=None if architecture is None else _ARCHITECTURES.get(architecture, f"architecture {architecture}"),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        parent_uuid=of.parent_uuid,
        sm_clock_max_mhz=fact("nvmlDeviceGetMaxClockInfo", api.NVML_CLOCK_SM),
        mem_clock_max_mhz=fact("nvmlDeviceGetMaxClockInfo", api.NVML_CLOCK_MEM),
        power_limit_w=watts("nvmlDeviceGetEnforcedPowerLimit"),
        power_limit_default_w=watts("nvmlDeviceGetPowerManagementDefaultLimit"),
        power_limit_min_w=None if limits_mw[0] is None else limits_mw[0] / 1000,
        power_limit_max_w=None if limits_mw[1] is None else limits_mw[1] / 1000,
        temperature_slowdown_c=fact("nvmlDeviceGetTemperatureThreshold", api.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        temperature_shutdown_c=fact("nvmlDeviceGetTemperatureThreshold", api.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        memory_total_bytes=None if memory is None else memory.total,
        memory_reserved_bytes=None if memory_apart is None else memory_apart.reserved,
        pcie_generation_max_count=fact("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_width_max_count=fact("nvmlDeviceGetMaxPcieLinkWidth"),
        numa_node_count=node if node is not None and node >= 0 else numa_node(bus_id),
        cuda_cores_count=fact("nvmlDeviceGetNumGpuCores", own=True),
        memory_bus_bits_count=fact("nvmlDeviceGetMemoryBusWidth", own=True),
        persistence_mode=None if persistence is None else bool(persistence),
        ecc_mode=None if ecc is None else bool(ecc[0]),
        mig_mode=None if mig is None else bool(mig[0]),
        compute_mode=None if compute_mode is None else _COMPUTE_MODES.get(compute_mode, f"mode {compute_mode}"),
        virtualization=None if virtualization is None else _VIRTUALIZATION.get(virtualization, f"mode {virtualization}"),
        supported_reasons_mask=reasons if reasons is not None else fact("nvmlDeviceGetSupportedClocksThrottleReasons"),
    )
