"""A GPU, and what is recorded of it beside its readings: processes, dense power, events, and intervals of silence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from annotate.evidence.reading import Lane

USE_STANDS_NS = 12_000_000_000  # the utilisation record is asked every ten seconds while no window is open


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRecord:
    """An interval of the driver's own dense power record (about 20 ms apart): parallel tuples, oldest first."""

    uuid: str
    at_ns: int
    took_ns: int
    sample_at_ns: tuple[int, ...]
    sample_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that was reported or happened: an Xid, a clock change, a GPU lost or back, the machine suspended."""

    uuid: str
    at_ns: int
    kind: str  # "xid", "clock", "ecc", "lost", "back", "suspended"
    value: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An interval in which a lane was due and gave nothing."""

    begin_ns: int
    end_ns: int
    lane: Lane = Lane.FAST


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU: who it is, what bounds it, and how it is set up.  Its identity is the UUID, never an index."""

    uuid: str
    name: str
    pci_bus_id: str | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    vbios_version: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    parent_uuid: str | None = None  # of a MIG instance: the board it lives on
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
    idle_power_w: float | None = None  # the lowest seen on this card with a context and no work


class Ownership(StrEnum):
    """Whose process it is, seen from one window."""

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
    """A process the driver named: on the process list, or only in the utilisation record (then no memory is known)."""

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
    use_asked: bool = False  # of the utilisation record, which may have named nobody; not known of stored ones

    @property
    def tells_use(self) -> bool:
        """Return whether the utilisation record was asked too, as far as it can be known."""
        return self.use_asked or any(process.utilization_ratio is not None for process in self.processes)

    def with_use(self, earlier: ProcessList) -> ProcessList:
        """The same list, with what an earlier one knew of the utilisation record: how busy each was, and whom only it named."""
        if self.tells_use or self.at_ns - earlier.at_ns > USE_STANDS_NS:
            return self
        ratios = {(process.pid, process.started_s): process.utilization_ratio for process in earlier.processes}
        here = {process.pid for process in self.processes}
        listed = (replace(each, utilization_ratio=ratios.get((each.pid, each.started_s))) for each in self.processes)
        unlisted = (each for each in earlier.processes if not each.listed and each.pid not in here)
        return replace(self, processes=(*listed, *unlisted))
