"""The facts of each GPU, read at each enumeration: identity, limits and modes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from annotate.evidence import Device
from gpuwatch.errors import SourceGoneError
from gpuwatch.host.processes import numa_node
from gpuwatch.sources.nvml.binding import Api, Handle, asked, error_text, lost, read_text, too_old, treat
from gpuwatch.sources.nvml.signals import Call, milli

_ARCHITECTURES: Mapping[int, str] = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell",
    13: "Rubin",
}  # fmt: skip
_COMPUTE_MODES: Mapping[int, str] = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_VIRTUALIZATION: Mapping[int, str] = {0: "none", 1: "pass-through", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}


def _name(names: Mapping[int, str], kind: str) -> Callable[[int], str]:
    """Return a function from the driver's number to its name; an unknown number becomes ``KIND NUMBER``."""
    return lambda number: names.get(number, f"{kind} {number}")


_LIMITS, _THRESHOLD = "nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceGetTemperatureThreshold"

# By fact of a device: the calls that may return it, tried in order.
FACTS: Mapping[str, tuple[Call, ...]] = {
    "name": (Call("nvmlDeviceGetName", (), lambda name: name or "unknown", instance=True),),
    "pci_bus_id": (Call("nvmlDeviceGetPciInfo_v3", (), lambda pci: read_text(lambda: pci.busId)),),
    "vbios_version": (Call("nvmlDeviceGetVbiosVersion"),),
    "architecture": (Call("nvmlDeviceGetArchitecture", (), _name(_ARCHITECTURES, "architecture")),),
    "compute_capability": (Call("nvmlDeviceGetCudaComputeCapability", (), lambda found: f"{found[0]}.{found[1]}"),),
    "sm_clock_max_mhz": (Call("nvmlDeviceGetMaxClockInfo", ("NVML_CLOCK_SM",)),),
    "mem_clock_max_mhz": (Call("nvmlDeviceGetMaxClockInfo", ("NVML_CLOCK_MEM",)),),
    "power_limit_w": (Call("nvmlDeviceGetEnforcedPowerLimit", (), milli),),
    "power_limit_default_w": (Call("nvmlDeviceGetPowerManagementDefaultLimit", (), milli),),
    "power_limit_min_w": (Call(_LIMITS, (), lambda limits_mw: milli(limits_mw[0])),),
    "power_limit_max_w": (Call(_LIMITS, (), lambda limits_mw: milli(limits_mw[1])),),
    "temperature_slowdown_c": (Call(_THRESHOLD, ("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN",)),),
    "temperature_shutdown_c": (Call(_THRESHOLD, ("NVML_TEMPERATURE_THRESHOLD_SHUTDOWN",)),),
    "memory_total_bytes": (Call("nvmlDeviceGetMemoryInfo", (), lambda memory: memory.total, instance=True),),
    # Version 2 of the call reports the driver's reserve separately; the constant encodes the structure's version and size.
    "memory_reserved_bytes": (
        Call("nvmlDeviceGetMemoryInfo", ("nvmlMemory_v2",), lambda memory: memory.reserved, instance=True),
    ),
    "pcie_generation_max_count": (Call("nvmlDeviceGetMaxPcieLinkGeneration"),),
    "pcie_width_max_count": (Call("nvmlDeviceGetMaxPcieLinkWidth"),),
    "numa_node_count": (Call("nvmlDeviceGetNumaNodeId"),),
    "cuda_cores_count": (Call("nvmlDeviceGetNumGpuCores", instance=True),),
    "memory_bus_bits_count": (Call("nvmlDeviceGetMemoryBusWidth", instance=True),),
    "persistence_mode": (Call("nvmlDeviceGetPersistenceMode", (), bool),),
    "ecc_mode": (Call("nvmlDeviceGetEccMode", (), lambda modes: bool(modes[0])),),
    "mig_mode": (Call("nvmlDeviceGetMigMode", (), lambda modes: bool(modes[0])),),
    "compute_mode": (Call("nvmlDeviceGetComputeMode", (), _name(_COMPUTE_MODES, "mode")),),
    "virtualization": (Call("nvmlDeviceGetVirtualizationMode", (), _name(_VIRTUALIZATION, "mode")),),
    "supported_reasons_mask": (
        Call("nvmlDeviceGetSupportedClocksEventReasons"),
        Call("nvmlDeviceGetSupportedClocksThrottleReasons"),
    ),
}


@dataclass(frozen=True, slots=True)
class BoardHandles:
    """Handles of a GPU or MIG instance and of its board; for a GPU the two are equal."""

    uuid: str
    handle: Handle
    board_handle: Handle
    parent_uuid: str | None = None
    instance_id: int | None = None  # GPU instance id of a MIG device


def count(api: Api) -> int:
    """Count the GPUs that the driver lists.

    Raises SourceGoneError: when the driver does not list its GPUs.
    """
    try:
        return int(api.nvmlDeviceGetCount())
    except api.NVMLError as error:
        treat(error)
        raise SourceGoneError(f"the driver does not list its GPUs: {error_text(error)}{too_old(error)}") from error


def at(api: Api, index: int) -> Iterator[BoardHandles]:
    """Yield the GPU at an index of the driver's list, then its MIG instances.

    Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
    """
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
    """Return the handles of a GPU or MIG instance by UUID.

    Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
    """
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
    """Read the facts of one GPU.  A MIG instance reports its own name, memory and cores; limits and modes are the board's."""
    facts = {name: value for name, calls in FACTS.items() if (value := _fact(api, of, calls)) is not None}
    if facts.get("numa_node_count", -1) < 0:
        facts["numa_node_count"] = numa_node(facts.get("pci_bus_id"))
    driver_version, nvml_version = (asked(api, f"nvmlSystemGet{each}Version") for each in ("Driver", "NVML"))
    named: dict[str, Any] = {"name": "unknown", "driver_version": driver_version, "nvml_version": nvml_version}
    return Device(uuid=of.uuid, parent_uuid=of.parent_uuid, **named | facts)


def _fact(api: Api, of: BoardHandles, calls: Sequence[Call]) -> Any:
    """Return the first call's answer that is not None; None if no call has an answer."""
    for call in calls:
        handle = of.handle if call.instance else of.board_handle
        answer = asked(api, call.function, handle, *(getattr(api, each) for each in call.args), uuid=of.uuid)
        if answer is not None:
            return call.take(answer)
    return None
