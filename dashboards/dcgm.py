"""Recording rules that give gpuwatch's series DCGM's names, for existing dashboards and alerts, made from one table.

Two series have no rule, because PromQL cannot compute them correctly.  The value of ``DCGM_FI_DEV_XID_ERRORS`` is an Xid's
number, which is a label in gpuwatch: use ``DCGM_EXP_XID_ERRORS_COUNT``.  ``DCGM_EXP_CLOCK_EVENTS_COUNT`` counts samples in an
interval, but gpuwatch counts seconds: use ``gpuwatch_gpu_clock_event_seconds_total``.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alias:
    """A DCGM name, gpuwatch's series, and the factor to DCGM's unit."""

    name: str
    ours: str
    times: str = "1"


def _violation(*reasons: str) -> str:
    return f'max without (source, reason) (gpuwatch_gpu_clock_event_seconds_total{{reason=~"{"|".join(reasons)}"}})'


ALIASES = (
    Alias("DCGM_FI_DEV_SM_CLOCK", 'gpuwatch_gpu_clock_hertz{domain="sm"}', "1e-6"),
    Alias("DCGM_FI_DEV_MEM_CLOCK", 'gpuwatch_gpu_clock_hertz{domain="memory"}', "1e-6"),
    Alias("DCGM_FI_DEV_MAX_SM_CLOCK", 'gpuwatch_gpu_clock_limit_hertz{domain="sm",kind="max"}', "1e-6"),
    Alias("DCGM_FI_DEV_GPU_TEMP", 'gpuwatch_gpu_temperature_celsius{sensor="core"}'),
    Alias("DCGM_FI_DEV_MEMORY_TEMP", 'gpuwatch_gpu_temperature_celsius{sensor="memory"}'),
    Alias("DCGM_FI_DEV_POWER_USAGE", 'gpuwatch_gpu_power_watts{kind="average"}'),
    Alias("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 'gpuwatch_gpu_power_limit_watts{kind="enforced"}'),
    Alias("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "gpuwatch_gpu_energy_joules_total", "1e3"),
    Alias("DCGM_FI_DEV_GPU_UTIL", 'gpuwatch_gpu_utilization_ratio{unit="gpu"}', "100"),
    Alias("DCGM_FI_DEV_MEM_COPY_UTIL", 'gpuwatch_gpu_utilization_ratio{unit="memory"}', "100"),
    Alias("DCGM_FI_PROF_SM_ACTIVE", 'gpuwatch_gpu_activity_ratio{unit="sm"}'),
    Alias("DCGM_FI_PROF_SM_OCCUPANCY", 'gpuwatch_gpu_activity_ratio{unit="occupancy"}'),
    Alias("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 'gpuwatch_gpu_activity_ratio{unit="tensor"}'),
    Alias("DCGM_FI_PROF_DRAM_ACTIVE", 'gpuwatch_gpu_activity_ratio{unit="dram"}'),
    Alias("DCGM_FI_DEV_FB_USED", "(gpuwatch_gpu_memory_used_bytes - gpuwatch_gpu_memory_reserved_bytes)", "2 ^ -20"),
    Alias("DCGM_FI_DEV_FB_FREE", "(gpuwatch_gpu_memory_size_bytes - gpuwatch_gpu_memory_used_bytes)", "2 ^ -20"),
    Alias("DCGM_FI_DEV_FB_RESERVED", "gpuwatch_gpu_memory_reserved_bytes", "2 ^ -20"),
    Alias("DCGM_FI_DEV_FB_TOTAL", "gpuwatch_gpu_memory_size_bytes", "2 ^ -20"),
    Alias("DCGM_FI_DEV_POWER_VIOLATION", _violation("sw_power_cap"), "1e9"),
    Alias("DCGM_FI_DEV_THERMAL_VIOLATION", _violation("sw_thermal_slowdown", "hw_thermal_slowdown"), "1e9"),
    Alias("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", _violation("sync_boost"), "1e9"),
    Alias("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "gpuwatch_gpu_pcie_replays_total"),
    Alias("DCGM_FI_DEV_PSTATE", "gpuwatch_gpu_performance_state"),
    Alias("DCGM_FI_PROF_PCIE_TX_BYTES", 'rate(gpuwatch_gpu_pcie_bytes_total{direction="sent"}[5m])'),
    Alias("DCGM_FI_PROF_PCIE_RX_BYTES", 'rate(gpuwatch_gpu_pcie_bytes_total{direction="received"}[5m])'),
    Alias("DCGM_FI_PROF_NVLINK_TX_BYTES", 'rate(gpuwatch_gpu_nvlink_bytes_total{direction="sent"}[5m])'),
    Alias("DCGM_FI_PROF_NVLINK_RX_BYTES", 'rate(gpuwatch_gpu_nvlink_bytes_total{direction="received"}[5m])'),
    Alias("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 'gpuwatch_gpu_row_remaps_total{kind="correctable"}'),
    Alias("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 'gpuwatch_gpu_row_remaps_total{kind="uncorrectable"}'),
    Alias("DCGM_FI_DEV_ROW_REMAP_PENDING", "gpuwatch_gpu_row_remap_pending"),
    Alias("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gpuwatch_gpu_row_remap_failed"),
    Alias("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 'gpuwatch_gpu_ecc_errors_total{kind="corrected"}'),
    Alias("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 'gpuwatch_gpu_ecc_errors_total{kind="uncorrected"}'),
    Alias("DCGM_EXP_XID_ERRORS_COUNT", "increase(gpuwatch_gpu_xid_errors_total[5m])"),
)  # fmt: skip

# DCGM's labels from gpuwatch's.  Labels that DCGM lacks are dropped, so that joins find one series per GPU.
_LABELS: Mapping[str, str] = {"UUID": "uuid", "modelName": "name", "DCGM_FI_DRIVER_VERSION": "driver_version"}
_HEAD = """\
# gpuwatch's metrics under the names, units and labels of dcgm-exporter, for dashboards and alerts written for it.
# Written by python -m dashboards.build from dashboards/dcgm.py. Load it in addition to alerts.yml only if something queries these names.
groups:
  - name: gpuwatch-dcgm-names
    rules:
"""


def rules() -> str:
    """Return the rule file's text."""
    return _HEAD + "".join(f"      - record: {alias.name}\n        expr: >-\n          {_expr(alias)}\n" for alias in ALIASES)


def _expr(alias: Alias) -> str:
    ours = alias.ours if alias.times == "1" else f"{alias.ours} * {alias.times}"
    joined = f"({ours}) * on (job, instance, uuid) group_left (name, driver_version, pci_bus_id) gpuwatch_device_info"
    for theirs, label in _LABELS.items():
        joined = f'label_replace({joined}, "{theirs}", "$1", "{label}", "(.*)")'
    joined = f'label_replace({joined}, "device", "nvidia$1", "gpu", "(.*)")'
    joined = f'label_replace({joined}, "Hostname", "$1", "instance", "([^:]+).*")'
    return f"max without (uuid, name, driver_version, domain, kind, sensor, unit, direction) ({joined})"
