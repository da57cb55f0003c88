"""Evidence for tests: a quiet, fully observed GPU, of which each test changes a few signals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from annotate.evidence import (
    SIGNALS,
    Column,
    Device,
    Event,
    Evidence,
    Fact,
    Gap,
    Host,
    Lane,
    Ownership,
    PowerRecord,
    Process,
    ProcessList,
    Timings,
    Trace,
    Visibility,
    WindowRecord,
)

UUID = "GPU-00000000-0000-0000-0000-000000000001"
OWN_PID = 4242
BEGIN_NS = 1_000_000_000_000
Signal: TypeAlias = Any  # a constant, None (never observed), or a function of seconds since the window began

DEVICE = Device(
    uuid=UUID, name="NVIDIA H200", pci_bus_id="00000000:00:06.0", driver_version="580.159.04", sm_clock_max_mhz=1980,
    mem_clock_max_mhz=3201, power_limit_w=700.0, power_limit_default_w=700.0, power_limit_min_w=200.0, power_limit_max_w=700.0,
    temperature_slowdown_c=87, memory_total_bytes=150_754_820_096, memory_reserved_bytes=645_000_000, persistence_mode=True,
    ecc_mode=True, mig_mode=False, compute_mode="default", virtualization="pass-through", numa_node_count=0,
    pcie_generation_max_count=5, pcie_width_max_count=16,
)  # fmt: skip

# A warmed, unthrottled copy loop on an H200.
QUIET: Mapping[str, Signal] = {
    "sm_clock_mhz": 1980, "mem_clock_mhz": 3201, "power_w": 566.0, "power_average_w": 566.0, "temperature_c": 50,
    "event_reasons_mask": 0, "utilization_ratio": 0.97, "mem_utilization_ratio": 0.9, "memory_used_bytes": 3_000_000_000,
    "power_cap_ns": 5_000_000_000, "sync_boost_ns": 0, "sw_thermal_ns": 0,
    "hw_thermal_ns": 0, "power_brake_ns": 0, "energy_j": lambda t: 1000.0 + 566.0 * (t + 100), "memory_temperature_c": 55,
    "temperature_margin_c": 37, "ecc_corrected_count": 0, "ecc_uncorrected_count": 0, "remapped_rows_count": 0,
    "remap_pending_count": 0, "remap_failed_count": 0, "pcie_replay_count": 0, "pcie_generation_count": 5, "pcie_width_count": 16,
    "sm_activity_ratio": 0.97, "sm_occupancy_ratio": 0.5, "tensor_activity_ratio": 0.0, "dram_activity_ratio": 0.9,
    "power_limit_w": 700.0, "sm_clock_lock_mhz": None, "persistence_mode": True, "ecc_mode": True, "mig_mode": False,
    "compute_mode": 0, "power_violation_ns": 5_000_000_000, "thermal_violation_ns": 0,
}  # fmt: skip

OWN = Process(
    pid=OWN_PID, name="python", user="me", memory_bytes=2_355_000_000, utilization_ratio=0.97, ownership=Ownership.OWN
)


def capped_ns(since_s: float = -100.0, share: float = 1.0) -> Callable[[float], int]:
    """Return a counter that starts to rise ``since_s`` after the window began."""
    return lambda t: 5_000_000_000 + int(max(0.0, t - since_s) * share * 1e9)


def columns(made: Mapping[str, Signal], asked_s: Mapping[Lane, Sequence[float]]) -> dict[str, Column]:
    """Return the columns that ``Trace.of`` makes of rows at these times, without the cost of making the rows."""
    at_ns = {lane: np.array([BEGIN_NS + round(t * 1e9) for t in times], np.int64) for lane, times in asked_s.items()}
    found = {}
    for name, lane in SIGNALS.items():
        values = [made[name](t) for t in asked_s[lane]] if callable(made[name]) else [made[name]] * len(asked_s[lane])
        if any(value is not None for value in values):
            found[name] = Column(at_ns[lane], np.array(values, np.float64))
    return found


def evidence(
    *,
    length_s: float = 6.0,
    period_s: float = 0.05,
    signals: Mapping[str, Signal] | None = None,
    processes: Iterable[Process] | None = (OWN,),
    visibility: Visibility = Visibility.HOST,
    gaps: Iterable[Gap] = (),
    events: Iterable[Event] = (),
    device: Device | None = DEVICE,
    host: Host | None = None,
    declared: Mapping[str, Fact] | None = None,
    timings: Timings | None = None,
    skip: Callable[[float], bool] = lambda t: False,
    label: str | None = "test",
) -> Evidence:
    """Return the evidence of one window, observed from 5 s before its start to 0.5 s after its end.

    ``signals`` overrides QUIET.  ``skip(t)`` drops rows, process lists and power samples at time t, except rows of the edge lane.
    ``processes=None`` gives no process lists.
    """
    made = {**QUIET, **(signals or {})}

    def times(step_s: float) -> list[float]:
        count = int((length_s + 5.5) / step_s) + 1
        return [t for t in (-5.0 + step_s * i for i in range(count)) if not skip(t)]

    asked_s = {Lane.FAST: times(period_s), Lane.SLOW: times(1.0), Lane.EDGE: [0.0, length_s]}
    process_lists = [
        ProcessList(uuid=UUID, at_ns=BEGIN_NS + round(t * 1e9), took_ns=10_000, processes=tuple(processes), visibility=visibility)
        for t in times(0.2)
    ] if processes is not None else []  # fmt: skip
    power: list[PowerRecord] = []
    if made["power_w"] is not None:
        dense = times(0.02)
        watts = tuple(float(made["power_w"](t) if callable(made["power_w"]) else made["power_w"]) for t in dense)
        stamps = tuple(BEGIN_NS + round(t * 1e9) for t in dense)
        power = [PowerRecord(uuid=UUID, at_ns=BEGIN_NS, took_ns=250_000, sample_at_ns=stamps, sample_w=watts)]
    return Evidence(
        window=WindowRecord(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + round(length_s * 1e9), label=label, pids=frozenset({OWN_PID})),
        device=device,
        trace=replace(
            Trace.of((), process_lists=process_lists, power=power, events=tuple(events), gaps=tuple(gaps)),
            columns=columns(made, asked_s),
        ),
        host=host or Host(boot_id="boot", span_s=length_s, cpu_s=length_s, run_wait_s=0.0, steal_ratio=0.0, cgroup_throttled_s=0.0,
                          cpu_allowed_count=16, numa_nodes="0", sharing="", wall_step_s=0.0, watcher_cpu_s=0.2),
        declared=declared or {},
        timings=timings,
    )  # fmt: skip
