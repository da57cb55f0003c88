"""Rows of the GPU's dashboard: links to host and siblings, and MIG instances."""

from collections.abc import Callable

from dashboards.panels import Cell, Part, Query, grid, lines, row
from dashboards.queries import RATE


def links(its: Callable[..., str]) -> tuple[Part, ...]:
    """Build the panels of PCIe, NVLink and MIG; ``its`` selects a metric of the chosen GPU."""
    pcie, nvlink = its("gpuwatch_gpu_pcie_bytes_total"), its("gpuwatch_gpu_nvlink_bytes_total")
    return (
        row("Links and partitions"),
        lines(
            "PCIe throughput",
            "Throughput including the protocol; shows a benchmark that copies inputs from the host while timed.",
            "Bps",
            Query(f"rate({pcie}[{RATE}])", "{{direction}}"),
            size=(8, 8),
        ),
        lines(
            "NVLink throughput",
            "Data over all links; empty on a GPU without NVLink, as in most virtual machines.",
            "Bps",
            Query(f"rate({nvlink}[{RATE}])", "{{direction}}"),
            size=(8, 8),
        ),
        lines(
            "Errors on links",
            "Repeated packets and failed checksums. A growing count means a defect of cable, riser or board.",
            "none",
            Query(its("gpuwatch_gpu_pcie_replays_total"), "PCIe replays"),
            Query(its("gpuwatch_gpu_nvlink_errors_total"), "NVLink {{kind}}"),
            Query(its("gpuwatch_gpu_nvlink_links", state="inactive"), "NVLinks down"),
            size=(8, 8),
        ),
        _instances(its),
    )


def _instances(its: Callable[..., str]) -> Part:
    used, size = its("gpuwatch_mig_memory_used_bytes"), its("gpuwatch_mig_memory_size_bytes")
    cells = (
        Cell(Query(f"max by (mig) ({its('gpuwatch_mig_processes')})"), "Processes"),
        Cell(Query(f"max by (mig, profile, gpu_instance) ({its('gpuwatch_mig_info')})")),
        Cell(Query(f"max by (mig) ({used})"), "Memory", "bytes"),
        Cell(Query(f"max by (mig) ({used} / {size})"), "Memory share", "percentunit"),
        Cell(Query(f"max by (mig) ({its('gpuwatch_mig_activity_ratio', unit='sm')})"), "SM activity", "percentunit"),
        Cell(Query(f"max by (mig) ({its('gpuwatch_mig_activity_ratio', unit='dram')})"), "Memory bandwidth", "percentunit"),
    )
    return grid(
        "MIG instances",
        "One row per instance; empty on a whole GPU. Clock, power and heat are the board's, so a busy instance slows its siblings.",
        cells,
        labels={"profile": "Profile", "gpu_instance": "GPU instance", "mig": "UUID"},
        size=(24, 7),
    )
