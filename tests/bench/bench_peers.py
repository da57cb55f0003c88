"""The cost of watching, compared with other watchers in one run, on a mock driver with one GPU and with eight.

The mock driver's calls compute for about the CPU time of the same calls on an H200.  So a query costs every watcher the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from tests.bench import peers
from tests.bench.scraping import scraped
from tests.bench.spent import Spent, spending
from tests.fake_nvml.build import build
from tests.fake_nvml.layout import CLASSES
from tests.fake_nvml.scene import NOT_SUPPORTED, Client, Scene, create
from tests.gpuwatch.live import running

Figures = dict[str, float]

COUNTS = (1, 8)
HZ = 10
WINDOWS_COUNT = 100
SETTLE_S = 2.0
# Microseconds a call computes, by class and then by function, as on an H200 (docs/HARDWARE.md).  Calls for the page and lists
# cost as much as after a pause, not as in a tight loop.  The H200 figures came through the binding, which calls twice for a
# list or record that is not empty.  Both calls are assumed to cost the same: process utilisation takes 1.8 ms there.
# A call for PCIe throughput takes 20.8 ms and mostly waits.  The mock driver only computes, so nvitop is faster here.
COST_US = {
    "page": 5.0, "call": 5.0, "identity": 1.0, "mig": 1.0, "processes": 88.0, "record": 125.0, "gpm": 5.0,
    "nvmlDeviceGetTotalEnergyConsumption": 3700.0, "nvmlDeviceGetPcieThroughput": 3000.0, "nvmlGpmMetricsGet": 1400.0,
    "nvmlDeviceGetProcessUtilization": 900.0, "nvmlDeviceGetViolationStatus": 600.0, "nvmlDeviceGetPcieReplayCounter": 130.0,
}  # fmt: skip
_EXPENSIVE_US = 80.0  # cost from which a call counts as expensive; every call of the fast lane costs less


@dataclass
class Row:
    """One watcher's cost over one stretch of time."""

    name: str
    spent: Spent
    calls_hz: float
    driver_ratio: float  # ratio of one core inside the driver's calls
    expensive_ratio: float  # the part of ``driver_ratio`` in expensive calls, such as lists and records
    rate_hz: float | None = None
    late_p50_ns: int | None = None
    late_p99_ns: int | None = None

    def line(self) -> str:
        late = "–" if self.late_p50_ns is None else f"{self.late_p50_ns / 1e6:.2f} / {(self.late_p99_ns or 0) / 1e6:.2f}"
        rate = "–" if self.rate_hz is None else f"{self.rate_hz:.1f}"
        return (
            f"{self.name:<44}{self.spent.cpu_ratio:>8.2%}{self.driver_ratio:>10.2%}{self.calls_hz:>9.0f}"
            f"{self.spent.memory_bytes / 1e6:>8.0f}{rate:>8}{late:>16}"
        )


def why_no_driver() -> str | None:
    """Return the reason why the mock driver cannot be built here, or None if it can be built."""
    return None if shutil.which("gcc") else "left out: the mock driver needs gcc; run: sudo make system"


def machine(path: Path, gpus: int, pid: int) -> Scene:
    """Return a scene of busy H200s with a process on each."""
    scene = create(path, gpus=gpus)
    for name, us in COST_US.items():
        scene.cost(name, us)
    # A real driver's event wait is idle; the mock driver's polls ten times a second, a cost for gpuwatch only.
    scene.fail("events", NOT_SUPPORTED)
    for gpu in scene.gpus:
        gpu.set(power_mw=600e3, sm_clock_mhz=1600, utilization_percent=97, event_reasons_mask=4)
        gpu.clients = [Client(pid=pid, sm_percent=97)]
        gpu.ripples("power_mw", 30e3)
        gpu.ripples("power_average_mw", 5e3)
        gpu.ripples("sm_clock_mhz", 60)
        gpu.moves("power_cap_ns", 0.7e9)
        gpu.moves("energy_mj", 600e3)
    return scene


def watched(name: str, pid: int, scene: Scene, seconds: float) -> Row:
    """Measure a watcher's CPU time and driver calls for ``seconds``."""
    before = scene.called()
    with spending(pid) as spent:
        time.sleep(seconds)
    calls = {function: count - before.get(function, 0) for function, count in scene.called().items()}
    took_us = {function: COST_US.get(function, COST_US.get(CLASSES[function], 0.0)) for function in calls}
    inside_s = {function: count * took_us[function] / 1e6 for function, count in calls.items()}
    expensive_s = sum(inside_s[function] for function in calls if took_us[function] >= _EXPENSIVE_US)
    length_s = spent.length_s
    return Row(name, spent, sum(calls.values()) / length_s, sum(inside_s.values()) / length_s, expensive_s / length_s)


def ours(scene: Scene, library: Path, seconds: float, *, open_window: bool) -> Iterator[Row]:
    """Measure gpuwatch's whole daemon, without scrapes and with one every second."""
    environment = {**scene.environment(library), "GPUWATCH_LISTEN": "127.0.0.1:0"}
    name = "gpuwatch, 100 Hz: a window is open" if open_window else "gpuwatch, 20 Hz"
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="gw")))
        live = held.enter_context(running(folder, "nvml", environment=environment))
        if open_window:
            uuids = [gpu.uuid for gpu in scene.gpus]
            held.enter_context(gpuwatch.window("held open", gpus=uuids, sync=False, settings=live.settings))
        time.sleep(SETTLE_S)
        for how, url in ((name, None), (f"{name}, scraped", _status(live.settings)["metrics"])):
            before = scene.calls_count("nvmlDeviceGetCurrentClocksEventReasons")
            with scraped(url):
                row = watched(how, live.process.pid, scene, seconds)
            asked = scene.calls_count("nvmlDeviceGetCurrentClocksEventReasons") - before
            row.rate_hz = asked / row.spent.length_s / len(scene.gpus)
            lanes = [gpu["questions"]["fast"] for gpu in _status(live.settings)["gpus"]]
            row.late_p50_ns = max(each["late_p50_ns"] for each in lanes)
            row.late_p99_ns = max(each["late_p99_ns"] for each in lanes)
            yield row


def _status(settings: Settings) -> dict[str, Any]:
    with connect(settings, start=False) as client:
        return client.status()


def theirs(name: str, python: Path, scene: Scene, library: Path, seconds: float) -> Row:
    """Measure another watcher through its API at ``HZ`` queries per second."""
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read if the watcher does not start
    process = subprocess.Popen(
        [str(python), str(Path(__file__).with_name("peer.py")), name, str(HZ)], stdout=subprocess.PIPE, stderr=errors, text=True,
        env={**os.environ, **scene.environment(library)},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            errors.seek(0)
            raise AssertionError(f"{name} did not start on the mock driver: {errors.read()}")
        time.sleep(SETTLE_S)
        counted = {"nvitop": "nvmlDeviceGetUtilizationRates", "gpustat": "nvmlDeviceGetUtilizationRates"}.get(name)
        before = scene.calls_count(counted) if counted else 0
        row = watched(f"{name} {peers.versions()[name]}, {_WHAT[name]}", process.pid, scene, seconds)
        if counted:
            row.rate_hz = (scene.calls_count(counted) - before) / row.spent.length_s / len(scene.gpus)
    finally:
        process.send_signal(signal.SIGTERM)
        lateness = process.stdout.read()
        process.wait(20)
        errors.close()
    row.late_p50_ns, row.late_p99_ns = (json.loads(lateness)[each] for each in ("late_p50_ns", "late_p99_ns"))
    return row


_WHAT = {"nvitop": "snapshots, processes", "gpustat": "new_query()", "zeus": "PowerMonitor"}


def windows(scene: Scene, library: Path) -> list[tuple[str, float, float]]:
    """Return medians of opening and closing a window in milliseconds, gpuwatch's and Zeus's alternating, in one process."""
    environment = scene.environment(library)
    with tempfile.TemporaryDirectory(prefix="gw") as folder, running(Path(folder), "nvml", environment=environment) as live:
        uuids = [gpu.uuid for gpu in scene.gpus]
        asked = {
            "uuids": uuids,
            "peers": str(peers.packages()),
            "state": str(live.settings.state),
            "socket": str(live.settings.socket),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.two_windows", json.dumps(asked), str(WINDOWS_COUNT)], check=True,
            env={**os.environ, **scene.environment(library)}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    return [
        (name, statistics.median(enter) * 1e3, statistics.median(leave) * 1e3) for name, enter, leave in json.loads(done.stdout)
    ]


def main(seconds: float = 15.0, counts: tuple[int, ...] = COUNTS) -> Figures:
    figures: Figures = {}
    if why := why_no_driver():
        print(f"\ncomparison with other watchers: {why}")
        return figures
    absent = [
        "nvidia-smi -lms: " + ("left out, it needs more of a driver" if shutil.which("nvidia-smi") else "not on this machine")
    ]
    try:
        python: Path | None = peers.python()
    except peers.MissingError as error:
        python = None
        absent.append(str(error))
    with tempfile.TemporaryDirectory(prefix="gw") as folder, sleeping() as pid:
        library = build(Path(folder) / "library")
        for count in counts:
            scene = machine(Path(folder) / f"scene-{count}", count, pid)
            what = f"{count} busy GPU{'s' if count > 1 else ''}, mock driver, {seconds:.0f} s each"
            print(f"\n{what:<44}{'CPU':>8}{'in driver':>10}{'calls/s':>9}{'MB':>8}{'Hz':>8}{'late p50/p99 ms':>16}")
            for key, row in _rows(scene, library, python, seconds):
                print(row.line(), flush=True)
                figures |= {
                    f"{key}_{count}_cpu_ratio": row.spent.cpu_ratio, f"{key}_{count}_dear_ratio": row.expensive_ratio,
                    f"{key}_{count}_memory_bytes": row.spent.memory_bytes, f"{key}_{count}_rate_hz": row.rate_hz or 0.0,
                    f"{key}_{count}_late_p99_ms": (row.late_p99_ns or 0) / 1e6,
                }  # fmt: skip
            if python is not None:
                print(f"{f'a window over {count}, median of {WINDOWS_COUNT} in turns':<44}{'enter ms':>10}{'exit ms':>10}")
                for name, enter_ms, exit_ms in windows(scene, library):
                    print(f"{name:<44}{enter_ms:>10.2f}{exit_ms:>10.2f}", flush=True)
                    figures |= {f"{name}_{count}_enter_ms": enter_ms, f"{name}_{count}_exit_ms": exit_ms}
    print("", *absent, _NOTES, sep="\n")
    return figures


_NOTES = f"""\
nvitop, gpustat: {HZ} queries a second requested, Hz is the reached rate; gpustat pauses 0.1 s per GPU with processes in each query.
zeus: power only, {HZ} times a second, in separate processes.  Only gpuwatch stores its readings."""


def _rows(scene: Scene, library: Path, python: Path | None, seconds: float) -> Iterator[tuple[str, Row]]:
    """Measure all watchers on this machine in sequence; yield rows with their figure names."""
    for hz, open_window in ((20, False), (100, True)):
        names = (f"{hz}hz", f"{hz}hz_scraped")
        yield from zip(names, ours(scene, library, seconds, open_window=open_window), strict=True)
    if python is not None:
        for name in peers.versions():
            yield name, theirs(name, python, scene, library, seconds)


@contextlib.contextmanager
def sleeping() -> Iterator[int]:
    """Start a process for the GPUs' process lists."""
    process = subprocess.Popen(["sleep", "infinity"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
