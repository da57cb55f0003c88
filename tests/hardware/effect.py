"""The effect of watching on the watched work, on a real GPU: work without a watcher, with gpuwatch, and with other watchers.

    python -m tests.hardware.effect OUT_FOLDER [SECONDS]

Every watcher is stopped (SIGSTOP) outside its turns, so that all share one run, one card and one temperature.  First, each
watcher runs alone for ten seconds on a GPU busy with GEMMs, which gives the CPU time.  Then short turns follow in random
order.  A turn is half a second of an fp32 GEMM below the power limit, and 20 000 launches timed one by one.  The program writes
``effect.json``: per watcher, differences from turns without a watcher, as medians over rounds with 95 % intervals.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pynvml
import torch

from annotate import __version__
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings, load
from gpuwatch.sources.nvml.compiled_loop import compiled
from tests.bench.spent import spending

LAUNCHES_COUNT = 20_000
GEMM_S = 0.5
STEADY_S = 10.0
START_S = 3.0
SETTLE_S = 0.15  # pause after a watcher continues
BOOTSTRAPS_COUNT = 2000
_QUERY = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,memory.used,clocks_event_reasons.active"
_NVITOP = """
import time
from nvitop import Device
devices = Device.all()
while True:
    for device in devices:
        device.as_snapshot()
        device.processes()
    time.sleep(0.1)
"""
_GPUSTAT = """
import time, gpustat
while True:
    gpustat.new_query()
    time.sleep(0.1)
"""
_ZEUS = """
import time
from zeus.monitor import PowerMonitor
if __name__ == "__main__":
    monitor = PowerMonitor(update_period=0.1, max_samples_per_gpu=1000)
    time.sleep(3600)
"""
_OPEN = """
import sys, time, gpuwatch
from gpuwatch.config.settings import load
with gpuwatch.window("held open", sync=False, settings=load({"state": sys.argv[1], "socket": sys.argv[2]})):
    time.sleep(3600)
"""
_SCRAPE = """
import sys, time, urllib.request
time.sleep(2)
while True:
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics").read()
    time.sleep(1)
"""


@dataclass
class Watcher:
    """A watching process.  ``beside``: processes that keep the watcher busy (an open window, a scraper), outside the cost."""

    name: str
    process: subprocess.Popen[bytes] | None = None
    beside: list[subprocess.Popen[bytes]] = field(default_factory=list)
    settings: Settings | None = None  # gpuwatch's daemon only: it reports the cost of each of its queries
    cost_ratios: dict[str, float] = field(default_factory=dict)  # by query, for all GPUs
    gpus_count: int | None = None
    steady_cpu_ratio: float | None = None
    memory_bytes: int = 0
    gemm_s: list[float] = field(default_factory=list)
    launches_s: list[tuple[float, float, float]] = field(default_factory=list)  # p50, p99, p99.9 of a turn

    def send(self, number: int) -> None:
        for process in [*self._family(), *(psutil.Process(each.pid) for each in self.beside)]:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def _family(self) -> list[psutil.Process]:
        if self.process is None:
            return []
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def end(self) -> None:
        self.send(signal.SIGCONT)
        for each in [*self.beside, *([self.process] if self.process else [])]:
            each.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(5)


def _start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _python(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return _start(sys.executable, "-c", code, *arguments)


def _daemon(name: str, folder: Path, *more: str) -> Watcher:
    settings = load({"source": "nvml", "state": str(folder), "socket": str(folder / "s")})
    where = ("--source", "nvml", "--state", str(settings.state), "--socket", str(settings.socket))
    return Watcher(name, _start(sys.executable, "-m", "gpuwatch", "daemon", *where, *more), settings=settings)


@contextlib.contextmanager
def watchers() -> Iterator[list[Watcher]]:
    """Measure the cost of every available watcher alone, and yield the watchers, stopped."""
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-effect-"))
    found = [Watcher("none")]
    try:
        for watcher in _started(folder):
            found.append(watcher)
            time.sleep(START_S)
            steady(watcher)
            watcher.send(signal.SIGSTOP)
        yield found
    finally:
        for watcher in found:
            watcher.end()
        shutil.rmtree(folder, ignore_errors=True)


def _started(folder: Path) -> Iterator[Watcher]:
    """Yield the watchers, each started on demand."""
    yield _daemon("gpuwatch, 20 Hz", folder / "idle")
    yield _scraped(_daemon("gpuwatch, 20 Hz, scraped each second", folder / "idle-scraped", "--listen", "127.0.0.1:9478"), 9478)
    yield _busy("gpuwatch, 100 Hz: a window is open", folder / "open")
    yield _scraped(_busy("the same, scraped each second", folder / "scraped", "--listen", "127.0.0.1:9479"), 9479)
    if shutil.which("nvidia-smi"):
        for each in (100, 10):
            yield Watcher(f"nvidia-smi -lms {each}", _start("nvidia-smi", _QUERY, "--format=csv", f"-lms={each}"))
    for name, code in (("nvitop", _NVITOP), ("gpustat", _GPUSTAT), ("zeus", _ZEUS)):
        if importlib.util.find_spec(name):
            yield Watcher(f"{name}'s API, 10 Hz", _python(code))


def _busy(name: str, folder: Path, *more: str) -> Watcher:
    """Run a daemon with an open window."""
    watcher = _daemon(name, folder, *more)
    time.sleep(START_S)
    assert watcher.settings is not None
    watcher.beside.append(_python(_OPEN, str(watcher.settings.state), str(watcher.settings.socket)))
    return watcher


def _scraped(watcher: Watcher, port: int) -> Watcher:
    watcher.beside.append(_python(_SCRAPE, str(port)))
    return watcher


def launches() -> tuple[float, float, float]:
    """Return the host's time of single launches into a queue that never fills: p50, p99 and p99.9 in seconds."""
    x = torch.zeros(1, device="cuda")
    took = np.empty(LAUNCHES_COUNT)
    clock = time.perf_counter_ns
    for number in range(LAUNCHES_COUNT):
        begin = clock()
        x.add_(1.0)
        took[number] = clock() - begin
        if number % 200 == 199:
            torch.cuda.synchronize()
    p50, p99, p999 = np.quantile(took, (0.5, 0.99, 0.999)) / 1e9
    return float(p50), float(p99), float(p999)


def gemms(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> float:
    """Return the median of back-to-back GEMMs, in seconds, by events."""
    pairs = []
    until = time.perf_counter() + GEMM_S
    while time.perf_counter() < until:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        torch.mm(a, b, out=out)
        last.record()
        pairs.append((first, last))
        if len(pairs) % 20 == 0:
            last.synchronize()
    torch.cuda.synchronize()
    return float(np.median([first.elapsed_time(last) for first, last in pairs])) / 1e3


def steady(watcher: Watcher, seconds: float = STEADY_S) -> None:
    """Measure a watcher's CPU time and memory on a busy GPU, and store them in the watcher."""
    a, b, out = (torch.randn(4096, 4096, device="cuda") for _ in range(3))
    assert watcher.process is not None
    with spending(watcher.process.pid) as spent:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            gemms(a, b, out)
    watcher.steady_cpu_ratio, watcher.memory_bytes = spent.cpu_ratio, spent.memory_bytes
    if watcher.settings is not None:
        _ask(watcher, watcher.settings)


def _ask(watcher: Watcher, settings: Settings) -> None:
    """Add up the cost of each query over all GPUs, from the daemon's status."""
    with connect(settings) as client:
        gpus = client.status()["gpus"]
    watcher.gpus_count = len(gpus)
    for gpu in gpus:
        for name, question in gpu["questions"].items():
            watcher.cost_ratios[name] = watcher.cost_ratios.get(name, 0.0) + (question["cost_ratio"] or 0.0)


@contextlib.contextmanager
def going(watcher: Watcher) -> Iterator[None]:
    watcher.send(signal.SIGCONT)
    try:
        yield
    finally:
        watcher.send(signal.SIGSTOP)


def rounds(found: Sequence[Watcher], seconds: float) -> int:
    """Run rounds with one turn per watcher, in random order, for this time; return the number of rounds."""
    a, b, out = (torch.randn(4096, 4096, device="cuda") for _ in range(3))
    rng, until, count = random.Random(0), time.monotonic() + seconds, 0
    gemms(a, b, out)
    while time.monotonic() < until:
        for watcher in rng.sample(list(found), len(found)):
            with going(watcher):
                time.sleep(SETTLE_S)
                watcher.gemm_s.append(gemms(a, b, out))
                watcher.launches_s.append(launches())
        count += 1
    return count


def row(watcher: Watcher, none: Watcher) -> dict[str, Any]:
    gemm = np.array(watcher.gemm_s) / np.array(none.gemm_s) - 1.0
    late = np.array(watcher.launches_s) - np.array(none.launches_s)
    has_process = watcher.process is not None
    return {
        "table": "effect", "watcher": watcher.name, "rounds_count": len(gemm),
        "cpu_ratio": watcher.steady_cpu_ratio, "is_steady": True, "loop": "compiled" if compiled()[0] is not None else "Python",
        "memory_bytes": watcher.memory_bytes if has_process else None,
        "gpus_count": watcher.gpus_count, "cost_ratios": watcher.cost_ratios,
        "gemm_s": float(np.median(watcher.gemm_s)), "gemm_change_ratio": _interval(gemm),
        "launch_s": [float(each) for each in np.median(np.array(watcher.launches_s), axis=0)],
        "launch_change_s": [_interval(late[:, column]) for column in range(3)],
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Return the known versions of gpuwatch, the driver and the Python watchers."""
    found = {"gpuwatch": __version__}
    with contextlib.suppress(pynvml.NVMLError):  # a figure without the driver's version is still valid
        pynvml.nvmlInit()
        found = {"driver": str(pynvml.nvmlSystemGetDriverVersion())} | found
    for name in ("nvitop", "gpustat", "zeus"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """Return the median over rounds, and the 95 % interval of resampled rounds."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (BOOTSTRAPS_COUNT, len(values))), axis=1)
    return [float(np.median(values)), *(float(each) for each in np.quantile(medians, (0.025, 0.975)))]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    with watchers() as found:
        rounds(found, float(arguments[1]) if len(arguments) > 1 else 120.0)
        rows = [
            {
                "date": time.strftime("%Y-%m-%d"),
                "gpu": torch.cuda.get_device_name(),
                "versions": versions(),
                **row(each, found[0]),
            }
            for each in found
        ]
    (folder / "effect.json").write_text(json.dumps(rows, indent=1))
    print(f"{'watcher':<36}{'CPU':>8}{'MB':>6}{'GEMM':>26}{'launch p50':>24}{'p99.9 us':>24}")
    for each in rows:
        cpu = "–" if each["cpu_ratio"] is None else f"{each['cpu_ratio']:.2%}"
        memory = "–" if each["memory_bytes"] is None else f"{each['memory_bytes'] / 1e6:.0f}"
        gemm, p50, p999 = each["gemm_change_ratio"], each["launch_change_s"][0], each["launch_change_s"][2]
        print(
            f"{each['watcher']:<36}{cpu:>8}{memory:>6}   {gemm[0]:+.3%} ({gemm[1]:+.3%}, {gemm[2]:+.3%})"
            f"  {p50[0] * 1e6:+6.2f} ({p50[1] * 1e6:+.2f}, {p50[2] * 1e6:+.2f})"
            f"  {p999[0] * 1e6:+6.2f} ({p999[1] * 1e6:+.2f}, {p999[2] * 1e6:+.2f})"
        )
    return 0


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    sys.exit(main(sys.argv[1:]))
