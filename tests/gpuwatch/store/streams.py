"""Sweeps of a sampler: one GPU under load, or idle."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from annotate.evidence import Device, Lane, PowerRecord, Process, ProcessList, Reading, Visibility
from gpuwatch.interfaces import Observed, Sweep

UUID = "GPU-00000000-0000-0000-0000-000000000001"
DEVICE = Device(
    uuid=UUID, name="NVIDIA H200", driver_version="580.159.04", power_limit_w=700.0, mig_mode=False, persistence_mode=True,
    memory_reserved_bytes=645_000_000,
)  # fmt: skip
BOOT = "00000000-0000-4000-8000-000000000000"
BEGIN_NS = 1_000_000_000_000
_MS = 1_000_000
OWN = Process(pid=4242, name="python", user="me", started_s=1.7e9, memory_bytes=2_355_000_000)


def sweep(observed: Observed, lane: Lane, *, uuid: str = UUID, missed_count: int = 0) -> Sweep:
    return Sweep(uuid, lane, observed.at_ns, 0, missed_count, observed)


def fast(at_ns: int, uuid: str = UUID, **signals: Any) -> Sweep:
    reading = Reading(uuid=uuid, lane=Lane.FAST, at_ns=at_ns, took_ns=20_000, **signals)
    return sweep(reading, Lane.FAST, uuid=uuid)


def pulse(at_ns: int, uuid: str = UUID, **signals: Any) -> Sweep:
    reading = Reading(uuid=uuid, lane=Lane.PULSE, at_ns=at_ns, took_ns=5_000, **signals)
    return sweep(reading, Lane.PULSE, uuid=uuid)


def listing(at_ns: int, *processes: Process, visibility: Visibility = Visibility.HOST) -> Sweep:
    process_list = ProcessList(uuid=UUID, at_ns=at_ns, took_ns=10_000, processes=processes, visibility=visibility)
    return sweep(process_list, Lane.PROCESSES)


def stream(
    seconds: float,
    *,
    loaded: bool,
    begin_ns: int = BEGIN_NS,
    period_ns: int = 50 * _MS,
    slow_s: float = 10.0,
    seed: int = 0,
    pulses: bool = True,
) -> Iterator[Sweep]:
    """Yield sweeps like those of an H200.

    Under load, power changes at 10 Hz and the clock at 5 Hz.  When idle, power has noise of 0.4 W and the clock is constant.
    Each second has 50 samples of dense power and five process lists; each slow row has one more list.  Under load, pulses come
    every 10 ms between the fast readings.  Most sweeps are then pulses, so tests of the stored amount leave the pulses out.
    """
    chance = random.Random(seed)
    power_w, average_w, clock_mhz, cap_ns, energy_j = (566.0, 560.0, 1980, 0, 0.0) if loaded else (75.0, 75.0, 345, 0, 0.0)
    noise_w = 8.0 if loaded else 0.4
    processes = (OWN,) if loaded else ()
    steps = int(seconds * 1000)
    for ms in range(0, steps, period_ns // _MS):
        at_ns = begin_ns + ms * _MS + chance.randrange(100_000)
        if ms % 100 == 0:
            power_w = round((566.0 if loaded else 75.0) + chance.gauss(0, noise_w), 3)
            average_w = round(0.9 * average_w + 0.1 * power_w, 3)
            cap_ns += 73_200_000 if loaded else 0
            energy_j += power_w * 0.1
        if loaded and ms % 200 == 0:
            clock_mhz = 1980 - 15 * chance.randrange(8)
        reading = Reading(
            uuid=UUID, lane=Lane.FAST, at_ns=at_ns, took_ns=20_000, sm_clock_mhz=clock_mhz, mem_clock_mhz=3201,
            power_w=power_w, power_average_w=average_w, temperature_c=50 if loaded else 30,
            event_reasons_mask=4 if loaded else 1, utilization_ratio=0.97 if loaded else 0.0,
            mem_utilization_ratio=0.4 if loaded else 0.0, memory_used_bytes=3_000_000_512 if loaded else 645_000_192,
            power_cap_ns=45_000_000_000 + cap_ns, sync_boost_ns=0, sw_thermal_ns=0,
        )  # fmt: skip
        yield sweep(reading, Lane.FAST)
        if loaded and pulses:
            for i in range(10, period_ns // _MS, 10):
                yield pulse(at_ns + i * _MS, sm_clock_mhz=clock_mhz, event_reasons_mask=4)
        if ms % 200 == 0:
            yield listing(at_ns + 10_000, *processes)
        if ms % 1000 == 0 and ms:
            times = tuple(at_ns - 20 * _MS * i + chance.randrange(-1500, 1500) * 1000 for i in range(50, 0, -1))
            watts = tuple(round((566.0 if loaded else 75.0) + chance.gauss(0, noise_w), 3) for _ in times)
            record = PowerRecord(uuid=UUID, at_ns=at_ns, took_ns=250_000, sample_at_ns=times, sample_w=watts)
            yield sweep(record, Lane.POWER)
        if ms % int(slow_s * 1000) == 0:
            slow = Reading(
                uuid=UUID, lane=Lane.SLOW, at_ns=at_ns + 20_000, took_ns=900_000, hw_thermal_ns=0, power_brake_ns=0,
                energy_j=round(energy_j, 3), memory_temperature_c=55, temperature_margin_c=37, ecc_corrected_count=0,
                ecc_uncorrected_count=0, remapped_rows_count=0, remap_pending_count=0, remap_failed_count=0,
                pcie_replay_count=0, pcie_generation_count=5, pcie_width_count=16, sm_activity_ratio=0.97123,
                sm_occupancy_ratio=0.51234, tensor_activity_ratio=0.31415, dram_activity_ratio=0.27182, power_limit_w=700.0,
                persistence_mode=True, ecc_mode=True, mig_mode=False, compute_mode=0,
            )  # fmt: skip
            yield sweep(slow, Lane.SLOW)
            busy = tuple(Process(pid=p.pid, name=p.name, user=p.user, started_s=p.started_s, memory_bytes=p.memory_bytes,
                                 utilization_ratio=0.97) for p in processes)  # fmt: skip
            yield listing(at_ns + 30_000, *busy)
