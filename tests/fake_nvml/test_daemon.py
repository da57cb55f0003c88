"""Tests of the daemon and the commands with eight GPUs of the mock driver."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from annotate.evidence import Lane
from gpuwatch.sources import has_driver
from gpuwatch.store import Reader
from gpuwatch.view import live as looking
from tests.fake_nvml.program import leave, work_on
from tests.fake_nvml.running import Watch, command, watching
from tests.fake_nvml.scene import NO_PERMISSION, Client, create
from tests.waiting import sample_for, wait_until

GIB = 1 << 30


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Watch]:
    folder = tmp_path_factory.mktemp("watched")
    with watching(folder, create(folder / "scene"), library) as found:
        with found.client() as client:
            wait_until(lambda: not client.status()["unmeasured"], what="the costs of the calls, measured at a higher rate")
        yield found


def shows(watch: Watch, index: int, **values: float) -> None:
    """Wait until the daemon's last row of a GPU has these values."""
    with watch.client() as client:

        def has_them() -> bool:
            row = looking.of(client.readings()).gpus[index].rows.get(Lane.FAST)
            return row is not None and all(getattr(row, name) == value for name, value in values.items())

        wait_until(has_them, what=f"GPU {index} shows {values}")


def test_has_driver_finds_the_library_alone(watch: Watch) -> None:
    """A machine counts as one with a driver if the driver's library loads."""
    program = "from gpuwatch.sources import has_driver; print(has_driver())"
    found = [
        subprocess.run([sys.executable, "-c", program], env={**os.environ, **more}, capture_output=True, text=True, check=True)
        for more in (watch.scene.environment(watch.library), {})
    ]
    assert found[0].stdout == "True\n"
    assert found[1].stdout == f"{has_driver()}\n"


def test_top_shows_the_drivers_values_of_every_gpu(watch: Watch) -> None:
    watch.scene.gpus[2].set(sm_clock_mhz=1410, power_mw=431_000, temperature_c=66, utilization_percent=87)
    watch.scene.gpus[2].set(event_reasons_mask=0x4)
    shows(watch, 2, sm_clock_mhz=1410, power_w=431.0, temperature_c=66, utilization_ratio=0.87, event_reasons_mask=0x4)
    shown = watch.command("top", "--once")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:9]] == [[str(index), "H200"] for index in range(8)]
    for words in ("1410/1980", "431/700", "66/87", "87%", "power cap"):
        assert words in lines[3], lines[3]
    assert "SIMULATED" not in shown.stdout


def test_daemon_reads_the_scenes_values_and_processes(watch: Watch) -> None:
    gpu = watch.scene.gpus[4]
    gpu.set(sm_clock_mhz=1234, power_mw=333_000, temperature_c=55, utilization_percent=44, mem_utilization_percent=22)
    gpu.clients = [Client(pid=os.getpid(), memory_bytes=7 * GIB, sm_percent=44)]
    with watch.client() as client:

        def is_listed() -> bool:
            process_list = looking.of(client.readings()).gpus[4].process_list
            return process_list is not None and bool(process_list.processes)

        shows(watch, 4, sm_clock_mhz=1234, power_w=333.0, temperature_c=55, utilization_ratio=0.44)
        wait_until(is_listed, what="an idle GPU's processes are read each second")
        shown = looking.of(client.readings()).gpus[4]
    row = shown.rows[Lane.FAST]
    assert (row.sm_clock_mhz, row.power_w, row.temperature_c) == (1234, 333.0, 55)
    assert (row.utilization_ratio, row.mem_utilization_ratio) == (0.44, 0.22)
    assert row.memory_used_bytes == 7 * GIB + gpu.now("memory_reserved_bytes")
    assert shown.process_list is not None
    assert [(process.pid, process.memory_bytes) for process in shown.process_list.processes] == [(os.getpid(), 7 * GIB)]
    gpu.clients = []


def test_program_is_judged_on_the_gpu_of_its_context(watch: Watch) -> None:
    program = [sys.executable, "-m", "tests.fake_nvml.program", str(watch.scene.path), "1.2", "6"]
    ended = watch.command("run", "--name", "six", "--", *program)
    assert ended.returncode == 0
    assert "six  NVIDIA H200" in ended.stderr
    (verdict,) = json.loads(watch.command("show", "--json").stdout)["verdicts"]
    assert verdict["device"]["uuid"] == watch.scene.gpus[6].uuid
    answered = {finding["rule"]: finding["answered"] for finding in verdict["findings"]}
    for rule in ("stale-daemon", "incomplete-body", "power-limited", "throttle-thermal", "hardware-error"):
        assert answered[rule] == "clear", rule


def test_program_without_a_gpu_is_unproven(watch: Watch) -> None:
    ended = watch.command("run", "--", "sleep", "1")
    assert ended.returncode == 0
    assert "UNPROVEN  sleep  no GPU" in ended.stderr
    assert "no process of this window held a context on a GPU" in ended.stderr


def test_xid_is_found_only_on_its_gpu(watch: Watch) -> None:
    """An Xid rejects the verdict on its GPU; on the window's other GPU, ``hardware-error`` is clear."""
    struck, spared = watch.scene.gpus[0], watch.scene.gpus[1]
    for gpu in (struck, spared):
        work_on(gpu, os.getpid())
    with watch.client() as client:
        opened = client.open(label="xid", gpus=[struck.uuid, spared.uuid])
        begin_ns = time.monotonic_ns()
        sample_for(0.3)
        struck.xid(94)
        sample_for(0.8)
        client.close_window(opened.run, begin_ns, time.monotonic_ns())
        verdicts = {verdict["device"]["uuid"]: verdict for verdict in client.verdicts(opened.run).verdicts}
    for gpu in (struck, spared):
        leave(gpu, os.getpid())
    found = {uuid: {finding["rule"]: finding for finding in verdict["findings"]} for uuid, verdict in verdicts.items()}
    assert verdicts[struck.uuid]["status"] == "rejected"
    assert "94" in found[struck.uuid]["hardware-error"]["says"]
    assert found[spared.uuid]["hardware-error"]["answered"] == "clear"


def test_forbidden_process_list_is_unobserved(watch: Watch) -> None:
    """With a forbidden list, ``contention-process`` is unobserved; a process on no list is found by its utilisation."""
    forbidden, hidden = watch.scene.gpus[5], watch.scene.gpus[7]
    for gpu in (forbidden, hidden):
        work_on(gpu, os.getpid())
    forbidden.fail("processes", NO_PERMISSION)
    hidden.clients = [*hidden.clients, Client(pid=4242, hidden=True, memory_bytes=0, sm_percent=40)]
    with watch.client() as client:
        opened = client.open(label="who", gpus=[forbidden.uuid, hidden.uuid])
        begin_ns = time.monotonic_ns()
        sample_for(1.1)
        client.close_window(opened.run, begin_ns, time.monotonic_ns())
        answered = {
            verdict["device"]["uuid"]: {finding["rule"]: finding["answered"] for finding in verdict["findings"]}
            for verdict in client.verdicts(opened.run).verdicts
        }
    forbidden.fail("processes", 0)
    for gpu in (forbidden, hidden):
        leave(gpu, os.getpid())
    assert answered[forbidden.uuid]["contention-process"] == "unobserved"
    neighbour = {answered[hidden.uuid]["contention-process"], answered[hidden.uuid]["contention-residual"]}
    assert "found" in neighbour, "a process of another container is busy, and on no list"


def test_idle_daemon_reads_at_20_hz_and_sets_nothing(watch: Watch) -> None:
    """An idle daemon reads each GPU at most about 20 times a second, and changes no setting."""
    begin_s = time.monotonic()
    before = [gpu.calls_count("nvmlDeviceGetUtilizationRates") for gpu in watch.scene.gpus]

    def more() -> list[int]:
        now = [gpu.calls_count("nvmlDeviceGetUtilizationRates") for gpu in watch.scene.gpus]
        return [late - early for early, late in zip(before, now, strict=True)]

    wait_until(lambda: min(more()) >= 15, what="each GPU is read")
    counts = more()
    assert max(counts) <= 22 * (time.monotonic() - begin_s) + 2, "a busy machine reads more rarely, never more often"
    assert not [name for name in watch.scene.called() if "Set" in name and "EventSet" not in name]


def test_doctor_measures_call_costs_and_refresh_periods(library: Path, tmp_path: Path) -> None:
    """`gpuwatch doctor` reports the costs of calls and the refresh periods of values."""
    small = create(tmp_path / "small", gpus=1)
    gpu = small.gpus[0]
    for number in ("power_mw", "power_average_mw"):
        gpu.set(**{number: 600_000})
        gpu.ripples(number, 9_000)
    small.cost("nvmlDeviceGetTotalEnergyConsumption", 2_000)
    places = ("--source", "nvml", "--state", str(tmp_path / "state"), "--socket", str(tmp_path / "s"))
    facts: dict[str, Any] = {}

    def measured() -> bool:
        checks = json.loads(command(small, library, *places, "doctor", "--json").stdout)["checks"]
        facts.update({check["name"]: check for check in checks})
        return "power_w" in facts["GPU-00000000"]["facts"]["refresh_ms"]

    wait_until(measured, what="half a second with enough changes, even on a busy machine")
    assert facts["driver"]["found"] == "580.159.04, NVML 13.580.159.04, 1 GPU"
    assert facts["sampling loop"]["found"] == "compiled"
    signals = facts["GPU-00000000"]
    assert signals["found"] == "NVIDIA H200: 37 of 37 signals answered"
    costs_us = signals["facts"]["cost_us"]
    assert costs_us["energy_j"] >= 2_000, "at least the configured cost"
    assert statistics.median(costs_us.values()) < costs_us["energy_j"], "the other calls are cheaper"
    assert signals["facts"]["refresh_ms"]["power_w"] >= 85, "a busy machine may read changes late, or miss some"


def test_short_window_is_judged_by_every_pass(watch: Watch) -> None:
    """The evidence of a short window has no hole beyond a refresh and a few missed passes, even if passes arrive together."""
    gpu = watch.scene.gpus[6]
    work_on(gpu, os.getpid())
    gpu.ripples("sm_clock_mhz", 60)  # the value changes at each refresh

    def is_judged_by_every_pass() -> bool:
        with watch.client() as client:
            opened = client.open(label="short", gpus=[gpu.uuid])
            begin_ns, before_count = time.monotonic_ns(), gpu.calls_count("nvmlDeviceGetCurrentClocksEventReasons")
            sample_for(0.4)
            end_ns, after_count = time.monotonic_ns(), gpu.calls_count("nvmlDeviceGetCurrentClocksEventReasons")
            client.close_window(opened.run, begin_ns, end_ns)
            client.verdicts(opened.run)
        with Reader(watch.live.settings.state) as reader:
            trace = reader.evidence(reader.run(opened.run), gpu.uuid).trace
        clock = trace.column("sm_clock_mhz").at_ns
        assert list(clock) == sorted(clock)
        assert trace.column("temperature_c").at_ns[-1] >= end_ns  # the row of the edge
        if trace.gaps:
            return False  # a late pass is a gap: another process had the CPU
        inside = [begin_ns, *clock[(clock >= begin_ns) & (clock <= end_ns)], end_ns]
        # The longest distance is a refresh, two passes, and the missed passes.  Edge readings hide some missed passes, so one
        # window without interference is enough.
        missed_count = max(0, (end_ns - begin_ns) // 10_000_000 - (after_count - before_count))
        most_ns = 100_000_000 + (2 + missed_count) * 10_000_000
        longest_ns = max(later - at_ns for at_ns, later in pairwise(inside))
        return missed_count <= 5 and longest_ns <= most_ns

    wait_until(is_judged_by_every_pass, what="a window without interference")
    gpu.ripples("sm_clock_mhz", 0)
    leave(gpu, os.getpid())
