"""The table of signals: for each, the driver's calls and the conversion of units.

The alternatives of a signal are tried in order at its first use on a GPU.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


def as_is(value: Any) -> Any:
    return value


def milli(value: float) -> float:
    return value / 1000


def percent(value: float) -> float:
    return value / 100


@dataclass(frozen=True, slots=True)
class Call:
    """An NVML function of a device; ``args`` names constants of the binding."""

    function: str
    args: tuple[str, ...] = ()
    take: Callable[[Any], Any] = as_is
    instance: bool = False  # True: on a MIG instance, call with the instance's handle instead of the board's


@dataclass(frozen=True, slots=True)
class Field:
    """One field, or the sum of several, named by the binding's constants."""

    names: tuple[str, ...]
    take: Callable[[Any], Any] = as_is


@dataclass(frozen=True, slots=True)
class SlowdownCounter:
    """One of the three slow-down counters, whose ids depend on the driver."""

    position: int


@dataclass(frozen=True, slots=True)
class GpmMetric:
    """A metric of the GPU performance monitor (Hopper and later)."""

    name: str


Question: TypeAlias = Call | Field | SlowdownCounter | GpmMetric


def _violation(policy: str) -> Call:
    return Call("nvmlDeviceGetViolationStatus", (policy,), lambda status: status.violationTime)  # in ns (nvml.h)


SIGNALS: Mapping[str, tuple[Question, ...]] = {
    "sm_clock_mhz": (Call("nvmlDeviceGetClockInfo", ("NVML_CLOCK_SM",)),),
    "mem_clock_mhz": (Call("nvmlDeviceGetClockInfo", ("NVML_CLOCK_MEM",)),),
    "power_w": (Field(("NVML_FI_DEV_POWER_INSTANT",), milli),),
    "power_average_w": (Field(("NVML_FI_DEV_POWER_AVERAGE",), milli), Call("nvmlDeviceGetPowerUsage", (), milli)),
    "temperature_c": (
        Call("nvmlDeviceGetTemperatureV", ("NVML_TEMPERATURE_GPU",)),
        Call("nvmlDeviceGetTemperature", ("NVML_TEMPERATURE_GPU",)),
    ),
    "event_reasons_mask": (
        Call("nvmlDeviceGetCurrentClocksEventReasons"),
        Call("nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
    "utilization_ratio": (Call("nvmlDeviceGetUtilizationRates", (), lambda rates: rates.gpu / 100, instance=True),),
    "mem_utilization_ratio": (Call("nvmlDeviceGetUtilizationRates", (), lambda rates: rates.memory / 100, instance=True),),
    # ``used`` of the call's first version includes the driver's reserve; version 2 reports the reserve separately.
    "memory_used_bytes": (Call("nvmlDeviceGetMemoryInfo", (), lambda memory: memory.used, instance=True),),
    "power_cap_ns": (Field(("NVML_FI_DEV_PERF_POLICY_POWER",)), _violation("NVML_PERF_POLICY_POWER")),
    "sync_boost_ns": (Field(("NVML_FI_DEV_PERF_POLICY_SYNC_BOOST",)), _violation("NVML_PERF_POLICY_SYNC_BOOST")),
    "sw_thermal_ns": (SlowdownCounter(0), _violation("NVML_PERF_POLICY_THERMAL")),
    "hw_thermal_ns": (SlowdownCounter(1),),
    "power_brake_ns": (SlowdownCounter(2),),
    "energy_j": (Call("nvmlDeviceGetTotalEnergyConsumption", (), milli),),
    "memory_temperature_c": (Field(("NVML_FI_DEV_MEMORY_TEMP",)),),
    "temperature_margin_c": (Call("nvmlDeviceGetMarginTemperature"),),
    "ecc_corrected_count": (
        Field(("NVML_FI_DEV_ECC_SBE_VOL_TOTAL",)),
        Call("nvmlDeviceGetTotalEccErrors", ("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC")),
    ),
    "ecc_uncorrected_count": (
        Field(("NVML_FI_DEV_ECC_DBE_VOL_TOTAL",)),
        Call("nvmlDeviceGetTotalEccErrors", ("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC")),
    ),
    "remapped_rows_count": (
        Field(("NVML_FI_DEV_REMAPPED_COR", "NVML_FI_DEV_REMAPPED_UNC")),
        Call("nvmlDeviceGetRemappedRows", (), lambda rows: rows[0] + rows[1]),
    ),
    "remap_pending_count": (
        Field(("NVML_FI_DEV_REMAPPED_PENDING",)),
        Call("nvmlDeviceGetRemappedRows", (), lambda rows: rows[2]),
    ),
    "remap_failed_count": (
        Field(("NVML_FI_DEV_REMAPPED_FAILURE",)),
        Call("nvmlDeviceGetRemappedRows", (), lambda rows: rows[3]),
    ),
    "pcie_replay_count": (Call("nvmlDeviceGetPcieReplayCounter"), Field(("NVML_FI_DEV_PCIE_REPLAY_COUNTER",))),
    "pcie_generation_count": (Call("nvmlDeviceGetCurrPcieLinkGeneration"),),
    "pcie_width_count": (Call("nvmlDeviceGetCurrPcieLinkWidth"),),
    "sm_activity_ratio": (GpmMetric("NVML_GPM_METRIC_SM_UTIL"),),
    "sm_occupancy_ratio": (GpmMetric("NVML_GPM_METRIC_SM_OCCUPANCY"),),
    "tensor_activity_ratio": (GpmMetric("NVML_GPM_METRIC_ANY_TENSOR_UTIL"),),
    "dram_activity_ratio": (GpmMetric("NVML_GPM_METRIC_DRAM_BW_UTIL"),),
    "power_limit_w": (Call("nvmlDeviceGetEnforcedPowerLimit", (), milli),),
    # The application clock, if it is not the default.  Driver 580 cannot report a range set with ``nvidia-smi
    # --lock-gpu-clocks``, so None does not exclude a lock.
    "sm_clock_lock_mhz": (Call("application_clock"),),
    "persistence_mode": (Call("nvmlDeviceGetPersistenceMode", (), bool),),
    "ecc_mode": (Call("nvmlDeviceGetEccMode", (), lambda modes: bool(modes[0])),),
    "mig_mode": (Call("nvmlDeviceGetMigMode", (), lambda modes: bool(modes[0])),),
    "compute_mode": (Call("nvmlDeviceGetComputeMode"),),
    "power_violation_ns": (_violation("NVML_PERF_POLICY_POWER"),),
    "thermal_violation_ns": (_violation("NVML_PERF_POLICY_THERMAL"),),
}


def application_clock(api: Any, handle: Any) -> int | None:
    """Return the SM application clock in MHz; None if it is the default."""
    target = api.nvmlDeviceGetApplicationsClock(handle, api.NVML_CLOCK_SM)
    default = api.nvmlDeviceGetDefaultApplicationsClock(handle, api.NVML_CLOCK_SM)
    return target if target != default else None
