"""Tests of the source ``nvml`` on a real GPU."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from annotate.evidence import Lane, Visibility, signals
from gpuwatch import clock
from gpuwatch.sampling.plan import PULSE
from gpuwatch.sources.nvml import Nvml
from gpuwatch.sources.nvml.compiled_loop import compiled
from gpuwatch.sources.nvml.signals import SIGNALS


@pytest.fixture(name="real")
def _real() -> Any:
    source = Nvml()
    yield source
    source.close()


@pytest.mark.gpu
def test_gpu_device_has_all_identity_facts(real: Nvml) -> None:
    for device in real.devices():
        print(device)
        for fact in ("uuid", "name", "pci_bus_id", "driver_version", "nvml_version", "memory_total_bytes", "sm_clock_max_mhz"):
            assert getattr(device, fact) is not None, fact
        assert device.uuid.startswith(("GPU-", "MIG-"))


@pytest.mark.gpu
def test_gpu_memory_used_includes_the_reserve(real: Nvml) -> None:
    device = real.devices()[0]
    used = real.read(device.uuid, Lane.FAST, ("memory_used_bytes",)).memory_used_bytes
    print("used", used, "reserved", device.memory_reserved_bytes, "of", device.memory_total_bytes)
    assert used is not None
    assert device.memory_reserved_bytes is not None
    assert used >= device.memory_reserved_bytes - 64_000_000


@pytest.mark.gpu
def test_gpu_fast_row_is_complete(real: Nvml) -> None:
    """Every signal of the fast lane has a value; power, temperature, energy and activity are plausible."""
    device = real.devices()[0]
    real.read(device.uuid, Lane.SLOW, signals(Lane.SLOW))
    clock.MonotonicClock().wait_until(clock.now_ns() + 600_000_000, threading.Event())
    slow = real.read(device.uuid, Lane.SLOW, signals(Lane.SLOW))
    fast = real.read(device.uuid, Lane.FAST, signals(Lane.FAST))
    edge = real.read(device.uuid, Lane.EDGE, signals(Lane.EDGE))
    for reading in (fast, slow, edge):
        print(reading.lane, f"took {reading.took_ns / 1e6:.3f} ms")
        for name in signals(reading.lane):
            print(f"  {name:24} {getattr(reading, name)}")
    print(dict(real.notes(device.uuid)), "unsupported:", sorted(set(SIGNALS) - real.supported(device.uuid)))
    for name in signals(Lane.FAST):
        assert getattr(fast, name) is not None, name
    assert fast.power_w is not None
    assert 10 < fast.power_w < 2000
    assert fast.temperature_c is not None
    assert 5 < fast.temperature_c < 110
    assert slow.energy_j is not None
    assert slow.energy_j > 0
    assert slow.sm_activity_ratio is None or 0 <= slow.sm_activity_ratio <= 1


@pytest.mark.gpu
def test_gpu_fast_row_takes_less_than_200_us(real: Nvml) -> None:
    uuid = real.devices()[0].uuid
    names = signals(Lane.FAST)
    real.read(uuid, Lane.FAST, names)
    took = sorted(real.read(uuid, Lane.FAST, names).took_ns for _ in range(2000))
    begin_ns = clock.now_ns()
    for _ in range(2000):
        real.read(uuid, Lane.FAST, names)
    whole_us = (clock.now_ns() - begin_ns) / 2000 / 1000
    print(f"fast row: calls p50 {took[1000] / 1000:.1f} us, p99 {took[1980] / 1000:.1f} us; whole read {whole_us:.1f} us")
    assert took[1000] < 200_000  # a broken plan (an exception or a probe each time) costs milliseconds


@pytest.mark.gpu
def test_gpu_compiled_loop_reads_the_same_signals(real: Nvml) -> None:
    """The compiled loop and a single read have values for the same signals; memory and temperature agree."""
    uuid, names = real.devices()[0].uuid, signals(Lane.FAST)
    series = real.series(uuid, names, PULSE)
    assert series is not None, compiled()[1]
    alone = real.read(uuid, Lane.FAST, names)
    begin_ns, begin_s = clock.now_ns(), time.thread_time()
    passes, error = series.run(begin_ns, begin_ns + 400_000_000, 10_000_000, row_at_ns=0, row_after_ns=45_000_000)
    spent_us = (time.thread_time() - begin_s) / len(passes) * 1e6
    rows = [each.reading for each in passes if each.reading.lane is Lane.FAST]
    print(
        f"{len(passes)} passes, {len(rows)} of them whole rows, {spent_us:.0f} us of CPU time per pass, with waking and reading"
    )
    assert error is None
    for name in names:
        assert (getattr(rows[-1], name) is None) is (getattr(alone, name) is None), name
    assert rows[-1].memory_used_bytes == pytest.approx(alone.memory_used_bytes, rel=0.05)
    assert rows[-1].temperature_c == pytest.approx(alone.temperature_c, abs=5)


@pytest.mark.gpu
def test_gpu_power_record_times_are_monotonic(real: Nvml) -> None:
    uuid = real.devices()[0].uuid
    waits = threading.Event()
    first = real.power_record(uuid)
    waits.wait(1.0)
    record = real.power_record(uuid)
    ages_ms = [(record.at_ns - at_ns) / 1e6 for at_ns in record.sample_at_ns]
    steps_ms = [(b - a) / 1e6 for a, b in zip(record.sample_at_ns, record.sample_at_ns[1:], strict=False)]
    print(f"first {len(first.sample_w)} then {len(record.sample_w)} samples, ages {ages_ms[-1:]}..{ages_ms[:1]} ms")
    print(
        f"steps {min(steps_ms):.1f}..{max(steps_ms):.1f} ms, {record.took_ns / 1e6:.2f} ms, {real.notes(uuid)['power record']}"
    )
    assert record.sample_w, "an idle H200 with persistence on still fills its record"
    assert -60 < ages_ms[-1] < 500
    assert ages_ms[0] < 1500
    assert all(0 < draw_w < 2000 for draw_w in record.sample_w)
    assert list(record.sample_at_ns) == sorted(set(record.sample_at_ns))


@pytest.mark.gpu
def test_gpu_process_list_contains_this_process(real: Nvml) -> None:
    """If the host's processes are visible, the list has this process with a name and memory."""
    torch = pytest.importorskip("torch")
    uuid = real.devices()[0].uuid
    work = torch.ones(4096, 4096, device="cuda:0")
    real.read_process_list(uuid, utilization=True)
    until_ns = clock.now_ns() + 2_000_000_000
    while clock.now_ns() < until_ns:
        work = work @ work * 0
    torch.cuda.synchronize()
    process_list = real.read_process_list(uuid, utilization=True)
    print(process_list.visibility, f"{process_list.took_ns / 1e6:.2f} ms", *process_list.processes, sep="\n  ")
    listed = {process.pid: process for process in process_list.processes if process.listed}
    if process_list.visibility == Visibility.HOST:
        assert os.getpid() in listed
        assert listed[os.getpid()].name
        assert (listed[os.getpid()].memory_bytes or 0) > 10_000_000


@pytest.mark.gpu
def test_gpu_events_wait_and_return(real: Nvml) -> None:
    uuid = real.devices()[0].uuid
    begin_ns = clock.now_ns()
    events = real.events(0.5)
    print(f"{len(events)} events after {(clock.now_ns() - begin_ns) / 1e9:.2f} s; kinds: {real.notes(uuid)['events']}")
    assert clock.now_ns() - begin_ns < 5_000_000_000
    assert all(event.kind in {"xid", "ecc"} for event in events)


@pytest.mark.gpu
def test_gpu_source_reopens_after_a_close() -> None:
    for _ in range(2):
        source = Nvml()
        assert source.read(source.devices()[0].uuid, Lane.FAST, ("sm_clock_mhz",)).sm_clock_mhz
        source.events(0.0)
        source.close()
