"""A GPU: who it is, what bounds it, how it is set up."""

from __future__ import annotations

from dataclasses import dataclass


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
    memory_reserved_bytes: int | None = None  # used by driver and firmware with nobody on the GPU
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
