"""Readings of the driver: each signal is one field, with the lane in which it is read.

Columns of the store and the plan of lanes derive from these fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntFlag, StrEnum
from typing import Any

# A row of the fast lane is repeated at least this often, even if nothing changed.
HEARTBEAT_NS = 1_000_000_000
STALE_NS = HEARTBEAT_NS + HEARTBEAT_NS // 2  # a fast value is valid this long; a longer silence: the lane was not read


class Lane(StrEnum):
    """A group of one GPU's signals that the daemon reads together."""

    FAST = "fast"
    PULSE = "pulse"  # the few fast signals that are also read between two rows of the fast lane
    SLOW = "slow"
    EDGE = "edge"
    PROCESSES = "processes"
    POWER = "power"
    EVENTS = "events"


class Reason(IntFlag):
    """Clock event reasons, the bits of ``nvmlClocksEventReasons`` (nvml.h); unknown bits are kept."""

    GPU_IDLE = 0x1
    APPLICATIONS_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY_CLOCK = 0x100


def _signal(lane: Lane, help_text: str, *, counter: bool = False) -> Any:
    # dataclasses.field is typed as the field's own type, hence Any.
    return field(default=None, metadata={"lane": lane, "help": help_text, "counter": counter})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A row of one lane of one GPU at one instant; rows are complete, so None never means "unchanged".

    ``at_ns`` is the time at which the row's last driver call returned; ``took_ns`` is the time that all calls took.
    """

    uuid: str
    lane: Lane
    at_ns: int
    took_ns: int

    sm_clock_mhz: int | None = _signal(Lane.FAST, "SM clock the driver programmed; 8-12 % above the true mean under a cap")
    mem_clock_mhz: int | None = _signal(Lane.FAST, "memory clock")
    power_w: float | None = _signal(Lane.FAST, "board power, about 25 ms average (field 186)")
    power_average_w: float | None = _signal(Lane.FAST, "board power, trailing 1 s mean (field 185)")
    temperature_c: int | None = _signal(Lane.FAST, "GPU temperature")
    event_reasons_mask: int | None = _signal(Lane.FAST, "clock event reasons, bits as in nvml.h")
    utilization_ratio: float | None = _signal(Lane.FAST, "share of time a kernel was running")
    mem_utilization_ratio: float | None = _signal(Lane.FAST, "share of time device memory was read or written")
    memory_used_bytes: int | None = _signal(Lane.FAST, "device memory in use, driver's reserve included")
    power_cap_ns: int | None = _signal(Lane.FAST, "time below requested clocks for power (field 74)", counter=True)
    sync_boost_ns: int | None = _signal(Lane.FAST, "time held to another GPU's clock (field 76)", counter=True)
    sw_thermal_ns: int | None = _signal(Lane.FAST, "time slowed by software for heat (field 269)", counter=True)

    hw_thermal_ns: int | None = _signal(Lane.SLOW, "time slowed by hardware for heat (field 270)", counter=True)
    power_brake_ns: int | None = _signal(Lane.SLOW, "time slowed by the external power brake (field 271)", counter=True)
    energy_j: float | None = _signal(Lane.SLOW, "energy since the driver was loaded", counter=True)
    memory_temperature_c: int | None = _signal(Lane.SLOW, "memory temperature (field 82)")
    temperature_margin_c: int | None = _signal(Lane.SLOW, "degrees left before slow-down")
    ecc_corrected_count: int | None = _signal(Lane.SLOW, "corrected memory errors, volatile", counter=True)
    ecc_uncorrected_count: int | None = _signal(Lane.SLOW, "uncorrected memory errors, volatile", counter=True)
    remapped_rows_count: int | None = _signal(Lane.SLOW, "memory rows remapped after errors", counter=True)
    remap_pending_count: int | None = _signal(Lane.SLOW, "1 while a row remap waits for a reset")
    remap_failed_count: int | None = _signal(Lane.SLOW, "1 after a row remap failed")
    pcie_replay_count: int | None = _signal(Lane.SLOW, "PCIe packets sent again", counter=True)
    pcie_generation_count: int | None = _signal(Lane.SLOW, "PCIe generation of the link now")
    pcie_width_count: int | None = _signal(Lane.SLOW, "PCIe lanes of the link now")
    sm_activity_ratio: float | None = _signal(Lane.SLOW, "share of SMs with a warp resident (GPM)")
    sm_occupancy_ratio: float | None = _signal(Lane.SLOW, "resident warps over the maximum (GPM)")
    tensor_activity_ratio: float | None = _signal(Lane.SLOW, "share of time the tensor pipe was busy (GPM)")
    dram_activity_ratio: float | None = _signal(Lane.SLOW, "share of memory bandwidth in use (GPM)")
    power_limit_w: float | None = _signal(Lane.SLOW, "enforced power limit")
    sm_clock_lock_mhz: int | None = _signal(Lane.SLOW, "SM application clock, if not the default; NVML reports no lock")
    persistence_mode: bool | None = _signal(Lane.SLOW, "persistence mode")
    ecc_mode: bool | None = _signal(Lane.SLOW, "ECC on")
    mig_mode: bool | None = _signal(Lane.SLOW, "MIG on")
    compute_mode: int | None = _signal(Lane.SLOW, "compute mode, number as in nvml.h")

    power_violation_ns: int | None = _signal(Lane.EDGE, "time under the power cap, continuous", counter=True)
    thermal_violation_ns: int | None = _signal(Lane.EDGE, "time slowed for heat, continuous", counter=True)


def signals(lane: Lane) -> tuple[str, ...]:
    """Return the names of the signals that belong to this lane, in the order of the fields."""
    return tuple(f.name for f in fields(Reading) if f.metadata.get("lane") == lane)


SIGNALS: Mapping[str, Lane] = {f.name: f.metadata["lane"] for f in fields(Reading) if "lane" in f.metadata}
COUNTERS: frozenset[str] = frozenset(f.name for f in fields(Reading) if f.metadata.get("counter"))
