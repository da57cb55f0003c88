"""The series of one GPU, without the rarely read ones, which ``rare_series`` writes."""

import heapq
from collections.abc import Mapping
from functools import reduce
from operator import or_

from annotate.clock_reasons import bits
from annotate.evidence import Device, Lane, ProcessList, Reason, Visibility
from gpuwatch.exporter.counters import LOADS, GpuTally, LastCanary
from gpuwatch.exporter.metrics import ASKED, LANES, METRICS, REASON_CLASSES
from gpuwatch.exporter.metrics_page import MetricsPage
from gpuwatch.interfaces import WatchedGpu

MHZ = 1e6
LEAST_STALE_NS = 5_000_000_000
STALE_PERIODS = 3  # a lane's readings are stale after this many periods, but not before LEAST_STALE_NS

REASON_NAMES: Mapping[int, str] = dict(zip((reason.value for reason in Reason), REASON_CLASSES, strict=True))
# The driver's own counters of time, by clock event reason.
_DRIVER_NS = {
    Reason.SW_POWER_CAP.value: "power_cap_ns",
    Reason.SYNC_BOOST.value: "sync_boost_ns",
    Reason.SW_THERMAL.value: "sw_thermal_ns",
    Reason.HW_THERMAL.value: "hw_thermal_ns",
    Reason.HW_POWER_BRAKE.value: "power_brake_ns",
}
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")  # in the order of nvml.h

# name of the metric, field of the reading, factor to base units, further labels
_OBSERVED: tuple[tuple[str, str, float, tuple[str, ...]], ...] = (
    ("gpuwatch_gpu_clock_hertz", "sm_clock_mhz", MHZ, ("sm",)),
    ("gpuwatch_gpu_clock_hertz", "mem_clock_mhz", MHZ, ("memory",)),
    ("gpuwatch_gpu_clock_limit_hertz", "sm_clock_lock_mhz", MHZ, ("sm", "locked")),
    ("gpuwatch_gpu_power_watts", "power_w", 1, ("instant",)),
    ("gpuwatch_gpu_power_watts", "power_average_w", 1, ("average",)),
    ("gpuwatch_gpu_temperature_celsius", "temperature_c", 1, ("core",)),
    ("gpuwatch_gpu_temperature_celsius", "memory_temperature_c", 1, ("memory",)),
    ("gpuwatch_gpu_temperature_margin_celsius", "temperature_margin_c", 1, ()),
    ("gpuwatch_gpu_utilization_ratio", "utilization_ratio", 1, ("gpu",)),
    ("gpuwatch_gpu_utilization_ratio", "mem_utilization_ratio", 1, ("memory",)),
    ("gpuwatch_gpu_activity_ratio", "sm_activity_ratio", 1, ("sm",)),
    ("gpuwatch_gpu_activity_ratio", "sm_occupancy_ratio", 1, ("occupancy",)),
    ("gpuwatch_gpu_activity_ratio", "tensor_activity_ratio", 1, ("tensor",)),
    ("gpuwatch_gpu_activity_ratio", "dram_activity_ratio", 1, ("dram",)),
    ("gpuwatch_gpu_memory_used_bytes", "memory_used_bytes", 1, ()),
    ("gpuwatch_gpu_row_remap_pending", "remap_pending_count", 1, ()),
    ("gpuwatch_gpu_row_remap_failed", "remap_failed_count", 1, ()),
    ("gpuwatch_gpu_pcie_link_generation", "pcie_generation_count", 1, ("current",)),
    ("gpuwatch_gpu_pcie_link_width", "pcie_width_count", 1, ("current",)),
    ("gpuwatch_gpu_persistence_mode", "persistence_mode", 1, ()),
    ("gpuwatch_gpu_ecc_mode", "ecc_mode", 1, ()),
    ("gpuwatch_gpu_mig_mode", "mig_mode", 1, ()),
    # The driver's counters, unchanged, because Prometheus detects resets.
    ("gpuwatch_gpu_energy_joules_total", "energy_j", 1, ()),
    ("gpuwatch_gpu_ecc_errors_total", "ecc_corrected_count", 1, ("corrected",)),
    ("gpuwatch_gpu_ecc_errors_total", "ecc_uncorrected_count", 1, ("uncorrected",)),
    ("gpuwatch_gpu_remapped_rows_total", "remapped_rows_count", 1, ()),
    ("gpuwatch_gpu_pcie_replays_total", "pcie_replay_count", 1, ()),
)
# Limits of a board: name of the metric, field of the device, factor, further labels
_LIMITS: tuple[tuple[str, str, float, tuple[str, ...]], ...] = (
    ("gpuwatch_gpu_clock_limit_hertz", "sm_clock_max_mhz", MHZ, ("sm", "max")),
    ("gpuwatch_gpu_clock_limit_hertz", "mem_clock_max_mhz", MHZ, ("memory", "max")),
    ("gpuwatch_gpu_power_limit_watts", "power_limit_default_w", 1, ("default",)),
    ("gpuwatch_gpu_power_limit_watts", "power_limit_min_w", 1, ("min",)),
    ("gpuwatch_gpu_power_limit_watts", "power_limit_max_w", 1, ("max",)),
    ("gpuwatch_gpu_temperature_limit_celsius", "temperature_slowdown_c", 1, ("slowdown",)),
    ("gpuwatch_gpu_temperature_limit_celsius", "temperature_shutdown_c", 1, ("shutdown",)),
    ("gpuwatch_gpu_memory_size_bytes", "memory_total_bytes", 1, ()),
    ("gpuwatch_gpu_memory_reserved_bytes", "memory_reserved_bytes", 1, ()),
    ("gpuwatch_gpu_pcie_link_generation", "pcie_generation_max_count", 1, ("max",)),
    ("gpuwatch_gpu_pcie_link_width", "pcie_width_max_count", 1, ("max",)),
)


def identity(page: MetricsPage, watched: WatchedGpu) -> None:
    """Write a GPU's identity, state, supported fields and sampling periods, even while the GPU is lost."""
    ids = (watched.device.uuid, str(watched.position))
    labels = METRICS["gpuwatch_device_info"].labels
    page.put("gpuwatch_device_info", 1, *ids, *(getattr(watched.device, label) or "" for label in labels[len(ids) :]))
    page.put("gpuwatch_gpu_up", watched.lost is None, *ids)
    for field, supported in watched.supported.items():
        page.put("gpuwatch_gpu_field_supported", supported, *ids, field)
    for lane, period_ns in watched.period_ns.items():
        page.put("gpuwatch_sampling_period_seconds", period_ns / 1e9, *ids, lane.value)


def watching(page: MetricsPage, watched: WatchedGpu, tally: GpuTally, now_ns: int) -> None:
    """Write the daemon's own counts, even while the GPU is lost."""
    ids = (watched.device.uuid, str(watched.position))
    for lane, counts in tally.lanes.items():
        of_lane = (*ids, lane.value)
        if lane.value in ASKED:
            page.put("gpuwatch_samples_missed_total", counts.missed_count, *of_lane)
        if lane.value in LANES:
            page.put("gpuwatch_losses_total", counts.lost_count, *of_lane)
            if counts.at_ns is not None:
                page.put("gpuwatch_reading_age_seconds", max(0, now_ns - counts.at_ns) / 1e9, *of_lane)
        elif lane not in (Lane.PULSE, Lane.EDGE):
            continue
        page.put("gpuwatch_samples_total", counts.count, *of_lane)
        page.put("gpuwatch_sampling_call_seconds_total", counts.call_ns / 1e9, *of_lane)
    page.histogram("gpuwatch_sample_lateness_seconds", tally.lateness, *ids)
    for number, (count, last_s) in tally.xids.items():
        page.put("gpuwatch_gpu_xid_errors_total", count, *ids, number)
        page.put("gpuwatch_gpu_xid_last_timestamp_seconds", last_s, *ids, number)


def canary(page: MetricsPage, watched: WatchedGpu, last: LastCanary | None) -> None:
    """Write the last canary that ``bench()`` ran on a GPU."""
    if last is not None:
        ids = (watched.device.uuid, str(watched.position))
        page.put("gpuwatch_gpu_canary_clock_hertz", last.clock_hz, *ids)
        page.put("gpuwatch_gpu_canary_copy_bytes_per_second", last.copy_bytes_per_s, *ids)
        page.put("gpuwatch_gpu_canary_timestamp_seconds", last.at_s, *ids)


def readings(page: MetricsPage, watched: WatchedGpu, tally: GpuTally, now_ns: int, *, processes_count: int) -> None:
    """Write the readings, limits, histograms and processes of a GPU that answers."""
    device = watched.device
    ids = (device.uuid, str(watched.position))
    observed = _observed(watched, tally, now_ns)
    for name, field, factor, labels in _OBSERVED:
        if (value := observed.get(field)) is not None:
            page.put(name, value * factor, *ids, *labels)
    for name, field, factor, labels in _LIMITS:
        if (value := getattr(device, field)) is not None:
            page.put(name, value * factor, *ids, *labels)
    page.put("gpuwatch_gpu_power_limit_watts", observed.get("power_limit_w", device.power_limit_w), *ids, "enforced")
    page.put("gpuwatch_gpu_power_peak_watts", tally.peak_w(now_ns), *ids)
    if (mode := observed.get("compute_mode")) is not None:
        for number, word in enumerate(_COMPUTE_MODES):
            page.put("gpuwatch_gpu_compute_mode", mode == number, *ids, word)
    _events(page, ids, device, tally, observed, watched.supported)
    for domain, of_loads in (("sm", tally.sm), ("memory", tally.mem)):
        for load, buckets in zip(LOADS, of_loads, strict=True):
            page.histogram("gpuwatch_gpu_clock_ratio", buckets, *ids, domain, load)
    page.histogram("gpuwatch_gpu_power_limit_ratio", tally.power, *ids)
    if tally.process_list is not None and _fresh(tally.lanes[Lane.PROCESSES].at_ns, 0, now_ns):
        _processes(page, ids, tally.process_list, processes_count)


def _observed(watched: WatchedGpu, tally: GpuTally, now_ns: int) -> dict[str, float]:
    """Return every signal of the last rows that are not stale, by field."""
    observed: dict[str, float] = {}
    # A signal's cost decides the lane; the row of the other lane holds None.
    for lane, row in ((Lane.SLOW, tally.slow), (Lane.FAST, tally.fast)):
        if row is not None and _fresh(row.at_ns, watched.period_ns.get(lane, 0), now_ns):
            observed |= {field: value for field in _FIELDS if (value := getattr(row, field)) is not None}
    return observed


_FIELDS = (
    *dict.fromkeys(
        [field for _, field, _, _ in _OBSERVED] + list(_DRIVER_NS.values())
        + ["power_limit_w", "compute_mode", "event_reasons_mask"]
    ),
)  # fmt: skip


def _fresh(at_ns: int | None, period_ns: int, now_ns: int) -> bool:
    return at_ns is not None and now_ns - at_ns <= max(LEAST_STALE_NS, STALE_PERIODS * period_ns)


def _events(
    page: MetricsPage,
    ids: tuple[str, str],
    device: Device,
    tally: GpuTally,
    observed: Mapping[str, float],
    supported: Mapping[str, bool],
) -> None:
    """Write the current clock event reasons, and the seconds under each reason."""
    mask = observed.get("event_reasons_mask")
    if mask is None:
        return
    listed_mask = sum(REASON_NAMES) if device.supported_reasons_mask is None else device.supported_reasons_mask
    # A reason that the driver neither lists nor has reported has no series.
    shown_mask = reduce(or_, tally.held_ns, int(mask) | listed_mask)
    for value in bits(shown_mask):
        reason = REASON_NAMES.get(value, f"unknown_bit_{value.bit_length() - 1}")
        page.put("gpuwatch_gpu_clock_event_active", bool(int(mask) & value), *ids, reason)
        field = _DRIVER_NS.get(value)
        if field is not None and supported.get(field, field in observed):
            if field in observed:
                page.put("gpuwatch_gpu_clock_event_seconds_total", observed[field] / 1e9, *ids, reason, "driver")
        else:
            held_ns = sum(held_ns for held, held_ns in tally.held_ns.items() if held & value)
            page.put("gpuwatch_gpu_clock_event_seconds_total", held_ns / 1e9, *ids, reason, "sampled")


def _processes(page: MetricsPage, ids: tuple[str, str], process_list: ProcessList, most_count: int) -> None:
    listed = [process for process in process_list.processes if process.listed]
    page.put("gpuwatch_gpu_processes", sum(not process.graphics for process in listed), *ids, "compute")
    page.put("gpuwatch_gpu_processes", sum(process.graphics for process in listed), *ids, "graphics")
    if process_list.visibility is not Visibility.UNKNOWN:
        page.put("gpuwatch_gpu_processes_complete", process_list.visibility is Visibility.HOST, *ids)
    sized = {process.pid: process for process in listed if process.memory_bytes is not None}
    for process in heapq.nlargest(most_count, sized.values(), key=lambda each: each.memory_bytes or 0):
        page.put("gpuwatch_process_gpu_memory_bytes", process.memory_bytes, *ids, str(process.pid), process.name or "")
