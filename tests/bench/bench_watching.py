"""The cost of watching without the driver: a daemon on a mock driver with free calls, with one GPU and with eight.

The benchmark also measures the CPU time of a pause of 10 ms: on an Event, on the sampler's wake-up, and in sleep.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.sampling.wakeup import Wakeup
from tests.bench.scraping import scraped
from tests.fake_nvml.build import build
from tests.fake_nvml.running import watching
from tests.fake_nvml.scene import create

_SETTLE_S = 2.0


def waiting_us(wait: Callable[[float], object], count: int = 200) -> float:
    """Return the CPU time of one pause of 10 ms in this thread."""
    begin_s = time.thread_time()
    for _ in range(count):
        wait(0.01)
    return (time.thread_time() - begin_s) / count * 1e6


def spent_ratio(pid: int, seconds: float) -> float:
    """Return a process's share of one core, without its children."""
    process = psutil.Process(pid)
    before, begin_s = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.monotonic() - begin_s)


def shares(folder: Path, library: Path, gpus: int, seconds: float) -> Iterator[tuple[str, float, float]]:
    """Yield both rates, each with the daemon's share of a core without and with a scrape every second."""
    scene = create(folder / "scene", gpus=gpus)
    for gpu in scene.gpus:
        gpu.set(power_mw=600e3, sm_clock_mhz=1600, utilization_percent=97, event_reasons_mask=4)
        gpu.ripples("power_mw", 30e3)
        gpu.ripples("sm_clock_mhz", 60)
    with watching(folder, scene, library, {"GPUWATCH_LISTEN": "127.0.0.1:0"}) as watch:
        settings = watch.live.settings
        with connect(settings, start=False) as client:
            url = client.status()["metrics"]
        for rate, uuids in (("20 Hz", None), ("100 Hz", [gpu.uuid for gpu in scene.gpus])):
            with contextlib.ExitStack() as held:
                if uuids is not None:
                    held.enter_context(gpuwatch.window("held open", gpus=uuids, sync=False, settings=settings))
                time.sleep(_SETTLE_S)
                plain = spent_ratio(watch.live.process.pid, seconds)
                with scraped(url):
                    with_scrape = spent_ratio(watch.live.process.pid, seconds)
                yield rate, plain, with_scrape


def main(seconds: float = 15.0, counts: tuple[int, ...] = (1, 8)) -> dict[str, float]:
    print("\nCost of watching without the driver: the mock driver's calls are free")
    waits: dict[str, Callable[[float], object]] = {
        "Event.wait": threading.Event().wait,
        "Wake.wait": Wakeup().wait,
        "time.sleep": time.sleep,
    }
    figures = {name: waiting_us(wait) for name, wait in waits.items()}
    print("  a pause of 10 ms: " + ", ".join(f"{name} {us:.0f} µs" for name, us in figures.items()))
    print(f"  {'GPUs':>4} {'rate':>8} {'of a core':>10} {'a GPU':>8} {'scraped':>9}")
    with tempfile.TemporaryDirectory(prefix="gw") as made_in:
        library = build(Path(made_in))
        for gpus in counts:
            folder = Path(made_in) / str(gpus)
            folder.mkdir()
            for rate, plain, with_scrape in shares(folder, library, gpus, seconds):
                print(f"  {gpus:>4} {rate:>8} {plain:>10.2%} {plain / gpus:>8.2%} {with_scrape:>9.2%}")
                figures |= {f"{gpus} {rate}": plain, f"{gpus} {rate} scraped": with_scrape}
    return figures


if __name__ == "__main__":
    main()
