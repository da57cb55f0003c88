"""The rarely read series of a board: P-state, row remaps by cause, PCIe bytes, NVLink, MIG instances."""

from gpuwatch.exporter.metrics_page import MetricsPage
from gpuwatch.interfaces import InstanceReading, RareReading, WatchedGpu

# name of the metric, field of the reading, further labels
_OF_BOARDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("gpuwatch_gpu_performance_state", "performance_state", ()),
    ("gpuwatch_gpu_row_remaps_total", "remapped_corrected_count", ("correctable",)),
    ("gpuwatch_gpu_row_remaps_total", "remapped_uncorrected_count", ("uncorrectable",)),
    ("gpuwatch_gpu_pcie_bytes_total", "pcie_sent_bytes", ("sent",)),
    ("gpuwatch_gpu_pcie_bytes_total", "pcie_received_bytes", ("received",)),
    ("gpuwatch_gpu_nvlink_bytes_total", "nvlink_sent_bytes", ("sent",)),
    ("gpuwatch_gpu_nvlink_bytes_total", "nvlink_received_bytes", ("received",)),
    ("gpuwatch_gpu_nvlink_links", "nvlink_active_count", ("active",)),
    ("gpuwatch_gpu_nvlink_links", "nvlink_inactive_count", ("inactive",)),
)
_OF_INSTANCES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("gpuwatch_mig_memory_used_bytes", "memory_used_bytes", ()),
    ("gpuwatch_mig_memory_size_bytes", "memory_total_bytes", ()),
    ("gpuwatch_mig_processes", "processes_count", ()),
    ("gpuwatch_mig_activity_ratio", "sm_activity_ratio", ("sm",)),
    ("gpuwatch_mig_activity_ratio", "sm_occupancy_ratio", ("occupancy",)),
    ("gpuwatch_mig_activity_ratio", "tensor_activity_ratio", ("tensor",)),
    ("gpuwatch_mig_activity_ratio", "dram_activity_ratio", ("dram",)),
)


def put(page: MetricsPage, watched: WatchedGpu, reading: RareReading | None) -> None:
    """Write the last rare reading of a board, and of its MIG instances."""
    if reading is None:
        return
    ids = (watched.device.uuid, str(watched.position))
    for name, field, labels in _OF_BOARDS:
        page.put(name, getattr(reading, field), *ids, *labels)
    for kind, count in reading.nvlink_errors_count.items():
        page.put("gpuwatch_gpu_nvlink_errors_total", count, *ids, kind)
    for instance in reading.instances:
        _put_instance(page, ids, instance)


def _put_instance(page: MetricsPage, board: tuple[str, str], instance: InstanceReading) -> None:
    ids = (*board, instance.uuid)
    # The profile follows "MIG": "NVIDIA H200 MIG 1g.18gb".
    profile = instance.name.rpartition("MIG ")[2]
    numbers = (instance.gpu_instance_id, instance.compute_instance_id)
    page.put("gpuwatch_mig_info", 1, *ids, profile, *("" if number is None else str(number) for number in numbers))
    for name, field, labels in _OF_INSTANCES:
        page.put(name, getattr(instance, field), *ids, *labels)
