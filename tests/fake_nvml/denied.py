"""The driver's numbers behind each of gpuwatch's signals."""

from __future__ import annotations

from collections.abc import Mapping

# A signal with an alternative call lists both numbers: the signal is missing only without both.
NUMBERS: Mapping[str, tuple[str, ...]] = {
    "sm_clock_mhz": ("sm_clock_mhz",),
    "mem_clock_mhz": ("mem_clock_mhz",),
    "power_w": ("power_mw",),
    "power_average_w": ("power_average_mw",),
    "temperature_c": ("temperature_c",),
    "event_reasons_mask": ("event_reasons_mask",),
    "utilization_ratio": ("utilization_percent",),
    "mem_utilization_ratio": ("mem_utilization_percent",),
    "memory_used_bytes": ("memory_used_bytes",),
    "power_cap_ns": ("power_cap_ns", "power_violation_ns"),
    "sync_boost_ns": ("sync_boost_ns", "sync_boost_violation_ns"),
    "sw_thermal_ns": ("sw_thermal_ns", "thermal_violation_ns"),
    "hw_thermal_ns": ("hw_thermal_ns",),
    "power_brake_ns": ("power_brake_ns",),
    "energy_j": ("energy_mj",),
    "memory_temperature_c": ("memory_temperature_c",),
    "temperature_margin_c": ("temperature_margin_c",),
    "ecc_corrected_count": ("ecc_corrected_count",),
    "ecc_uncorrected_count": ("ecc_uncorrected_count",),
    "remapped_rows_count": ("remapped_corrected_count",),
    "remap_pending_count": ("remap_pending_count",),
    "remap_failed_count": ("remap_failed_count",),
    "pcie_replay_count": ("pcie_replay_count",),
    "pcie_generation_count": ("pcie_generation_count",),
    "pcie_width_count": ("pcie_width_count",),
    "sm_activity_ratio": ("sm_activity_percent",),
    "sm_occupancy_ratio": ("sm_occupancy_percent",),
    "tensor_activity_ratio": ("tensor_activity_percent",),
    "dram_activity_ratio": ("dram_activity_percent",),
    "power_limit_w": ("power_limit_mw",),
    "sm_clock_lock_mhz": ("application_clock_mhz",),
    "persistence_mode": ("persistence_mode",),
    "ecc_mode": ("ecc_mode",),
    "mig_mode": ("mig_mode",),
    "compute_mode": ("compute_mode",),
    "power_violation_ns": ("power_violation_ns",),
    "thermal_violation_ns": ("thermal_violation_ns",),
}
