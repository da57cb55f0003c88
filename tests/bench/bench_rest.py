"""The cost of a daemon by thread: with an idle GPU and no clients, and with a busy GPU, without and with an open window.

The mock driver's calls compute for the times in ``COST_US``.  On an H200, calls take longer after a pause, probably because
the driver opens its page again.  Only a real card shows the whole effect (``tests/hardware/costs.py``).
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gpuwatch
from tests.bench.bench_peers import COST_US, machine, why_no_driver
from tests.fake_nvml.build import build
from tests.fake_nvml.layout import CLASSES
from tests.fake_nvml.running import Watch, watching
from tests.fake_nvml.scene import Scene

_RESTED_S = 25.0  # covers the measurement of the lanes, 10 s of idle readings, and the step before rest
_SETTLE_S = 12.0
_SHOWN = {"rest": "idle, nobody connected", "busy": "busy, 20 Hz", "window": "busy, a window is open"}


@dataclass(frozen=True)
class Stretch:
    """The daemon's share of one core over a stretch of time, without the judge's process."""

    cpu_ratio: float
    driver_ratio: float  # share inside the driver's calls
    wakes_hz: float
    threads: tuple[tuple[float, float], ...]  # ratio of a core and wake-ups per second of the four busiest, the largest first


def _threads(pid: int) -> dict[str, tuple[float, int]]:
    """Return CPU time and wake-ups of each thread."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            ran_ns, _, switched_count = map(int, (task / "schedstat").read_text().split())
            found[task.name] = ran_ns / 1e9, switched_count
    return found


def _driver_s(calls: dict[str, int]) -> float:
    return sum(count * COST_US.get(name, COST_US.get(CLASSES[name], 0.0)) for name, count in calls.items()) / 1e6


def spent(watch: Watch, seconds: float) -> Stretch:
    pid = watch.live.process.pid
    before, calls, begin_s = _threads(pid), watch.scene.called(), time.monotonic()
    time.sleep(seconds)
    after, calls_after, length_s = _threads(pid), watch.scene.called(), time.monotonic() - begin_s
    rows = [
        ((cpu_s - before.get(task, (0.0, 0))[0]) / length_s, (count - before.get(task, (0.0, 0))[1]) / length_s)
        for task, (cpu_s, count) in after.items()
    ]
    driver_s = _driver_s(calls_after) - _driver_s(calls)
    rows.sort(reverse=True)
    return Stretch(sum(cpu for cpu, _ in rows), driver_s / length_s, sum(wakes for _, wakes in rows), tuple(rows[:4]))


def _idle(scene: Scene) -> None:
    for gpu in scene.gpus:
        gpu.set(power_mw=120e3, sm_clock_mhz=1980, utilization_percent=0, event_reasons_mask=1)
        gpu.clients = []
        gpu.moves("power_cap_ns", 0)
        gpu.moves("energy_mj", 120e3)


def stretches(folder: Path, library: Path, seconds: float) -> Iterator[tuple[str, Stretch]]:
    """Yield each state's name and figures, measured on a new daemon."""
    for name in _SHOWN:
        (folder / name).mkdir()
        scene = machine(folder / name / "scene", 1, os.getpid())
        if name == "rest":
            _idle(scene)
        with watching(folder / name, scene, library) as watch, contextlib.ExitStack() as held:
            if name == "window":
                uuids = [gpu.uuid for gpu in scene.gpus]
                held.enter_context(gpuwatch.window("held open", gpus=uuids, sync=False, settings=watch.live.settings))
            time.sleep(_RESTED_S if name == "rest" else _SETTLE_S)
            yield name, spent(watch, seconds)


def main(seconds: float = 30.0) -> dict[str, float]:
    if (why := why_no_driver()) is not None:
        print(f"rest: {why}")
        return {}
    figures = {}
    print(f"one GPU on the mock driver, {seconds:g} s each   daemon  in driver  wakes/s   costliest threads: share, wakes/s")
    with tempfile.TemporaryDirectory(prefix="gw") as made_in:
        folder = Path(made_in)
        for name, found in stretches(folder, build(folder), seconds):
            threads = ", ".join(f"{cpu:.3%} {wakes:.0f}" for cpu, wakes in found.threads)
            print(
                f"{_SHOWN[name]:<38}{found.cpu_ratio:>9.3%}{found.driver_ratio:>11.3%}{found.wakes_hz:>9.1f}   {threads}",
                flush=True,
            )
            figures[f"{name}_cpu_ratio"] = found.cpu_ratio
    return figures


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
