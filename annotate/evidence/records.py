"""A GPU, and its records other than readings: processes, dense power, events and gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from annotate.evidence.reading import Lane

USE_STANDS_NS = 12_000_000_000  # the utilisation record is read every ten seconds while no window is open


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRecord:
    """An interval of the driver's dense power record (samples about 20 ms apart): parallel tuples, oldest first."""

    uuid: str
    at_ns: int
    took_ns: int
    sample_at_ns: tuple[int, ...]
    sample_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event on a GPU or its machine: an Xid, a memory error, a GPU lost or back, a suspended machine."""

    uuid: str
    at_ns: int
    kind: str  # "xid", "ecc", "lost", "back", "suspended"
    value: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An interval in which a lane was due but returned nothing."""

    begin_ns: int
    end_ns: int
    lane: Lane = Lane.FAST


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU: identity, limits and settings.  The UUID identifies a GPU, never an index."""

    uuid: str
    name: str
    pci_bus_id: str | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    vbios_version: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    parent_uuid: str | None = None  # board of a MIG instance
    simulated: bool = False
    sm_clock_max_mhz: int | None = None
    mem_clock_max_mhz: int | None = None
    power_limit_w: float | None = None  # enforced
    power_limit_default_w: float | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    temperature_slowdown_c: int | None = None
    temperature_shutdown_c: int | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None  # used by driver and firmware without a process on the GPU
    pcie_generation_max_count: int | None = None
    pcie_width_max_count: int | None = None
    numa_node_count: int | None = None
    cuda_cores_count: int | None = None
    memory_bus_bits_count: int | None = None
    persistence_mode: bool | None = None
    ecc_mode: bool | None = None
    mig_mode: bool | None = None
    compute_mode: str | None = None
    virtualization: str | None = None
    supported_reasons_mask: int | None = None
    idle_power_w: float | None = None  # the lowest power seen on this card with a context and no work


class Ownership(StrEnum):
    """The owner of a process, relative to one window."""

    OWN = "own"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class Visibility(StrEnum):
    """The part of the machine's process list that the witness could see."""

    HOST = "host"  # every process of the machine
    NAMESPACE = "namespace"  # only this container's
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that the driver reported: on the process list, or only in the utilisation record, without memory figures."""

    pid: int
    name: str | None = None
    user: str | None = None
    started_s: float | None = None  # wall time of its start: a PID alone is reused
    memory_bytes: int | None = None
    utilization_ratio: float | None = None
    listed: bool = True  # False: only the utilisation record names it
    graphics: bool = False
    ownership: Ownership = Ownership.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessList:
    """The processes on one GPU at one instant."""

    uuid: str
    at_ns: int
    took_ns: int
    processes: tuple[Process, ...]
    visibility: Visibility = Visibility.UNKNOWN
    use_asked: bool = False  # True if the utilisation record was read too, even if it was empty; False for stored lists

    @property
    def tells_use(self) -> bool:
        """Return True if the utilisation record is known to have been read too."""
        return self.use_asked or any(process.utilization_ratio is not None for process in self.processes)

    def with_use(self, earlier: ProcessList) -> ProcessList:
        """Return the list with the utilisation of an earlier list, and the processes that only its record named.

        The list stays the same if its utilisation record was read, or if the earlier list is too old.
        """
        if self.tells_use or self.at_ns - earlier.at_ns > USE_STANDS_NS:
            return self
        ratios = {(process.pid, process.started_s): process.utilization_ratio for process in earlier.processes}
        pids = {process.pid for process in self.processes}
        listed = (replace(each, utilization_ratio=ratios.get((each.pid, each.started_s))) for each in self.processes)
        unlisted = (each for each in earlier.processes if not each.listed and each.pid not in pids)
        return replace(self, processes=(*listed, *unlisted))
