"""The cost of watching on a real GPU: the first window, closing timed iterations, and the daemon's CPU time and memory.

    python -m tests.hardware.costs OUT_FOLDER [SECONDS] [start] [watching] [floor] [closing] [smi] [calls]

Without names, the program measures all parts except ``calls``: the CPU time of single driver calls after a pause.  The floor is
the CPU time of the readings alone, at the daemon's rates, without store, page, clients and judge.

The daemon watches an idle GPU, then a busy one, then one with an open window.  In the same run, ``nvidia-smi -lms 10`` watches
an idle and a busy GPU.  The program compiles the bytecode that a start needs, as pip does.  The program writes
``figures-costs.json``; ``tests.hardware.merged`` appends the rows to the committed data.
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
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import gpuwatch
from annotate.evidence import Lane
from gpuwatch.clock import MonotonicClock
from gpuwatch.config.settings import Settings
from gpuwatch.sampling.measure import measure
from gpuwatch.sampling.plan import PULSE, PlanTargets
from gpuwatch.sampling.sampler import Sampler
from gpuwatch.sources.nvml import Nvml
from tests.bench.scraping import scraped
from tests.bench.spent import spending
from tests.gpuwatch.live import Live, running, settings
from tests.hardware.effect import gemms, launches, versions
from tests.waiting import wait_until

ROUNDS_COUNT = 5
STARTS_COUNT = 14
WATCHED_S = 15.0
SETTLE_S = 4.0
UNFORKED = {"PYTHONHASHSEED": "0"}  # a daemon forked from the tests' server would also hold the server's memory
REST_S = 45.0  # until the daemon has measured the lanes, and has made the first rare readings of an idle GPU
PAUSES_S = (0.05, 0.45)
STAMPED_COUNT, HOST_COUNT = 15_000, 10_000
_QUERY = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,memory.used,clocks_event_reasons.active"
_ENTERED = """
import json, sys, time
with_torch = sys.argv.pop(1) == "torch"
import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import load
if with_torch:
    import torch
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
found = load(dict(flag[2:].split("=", 1) for flag in sys.argv[1:]))
window = gpuwatch.window("start", settings=found)
began_s = time.perf_counter()
window.__enter__()
enter_s = time.perf_counter() - began_s
with connect(found, start=False) as client:
    pid = client.status()["pid"]
window.__exit__(None, None, None)
again_s = time.perf_counter()
with gpuwatch.window("again", settings=found):
    again_s = time.perf_counter() - again_s
closed_s = time.perf_counter()
window.verdict
print(json.dumps({"pid": pid, "enter_s": enter_s, "again_s": again_s, "verdict_s": time.perf_counter() - closed_s}))
"""

Row = dict[str, Any]


def compile_imports() -> None:
    """Compile the imported modules of a window and its daemon that have no bytecode: some images lack it."""
    code = """
import os, py_compile, sys
import gpuwatch.daemon.on_demand, gpuwatch.daemon.process, gpuwatch.sources.nvml, pynvml
for module in list(sys.modules.values()):
    if getattr(module, "__cached__", None) and not os.path.exists(module.__cached__):
        py_compile.compile(module.__file__)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def starts(how: str, count: int) -> Iterator[Row]:
    """Time first windows, which start their daemon, in processes with and without a CUDA context of torch."""
    for _ in range(count):
        with tempfile.TemporaryDirectory(prefix="gw") as folder:
            command = [sys.executable, "-c", _ENTERED, how, *settings(Path(folder), "nvml").flags()]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            found = json.loads(done.stdout)
            os.kill(found["pid"], signal.SIGTERM)
            wait_until(lambda found=found: not Path(f"/proc/{found['pid']}").exists())  # type: ignore[misc]
            yield {"table": "first-window", "how": how, **{name: found[name] for name in ("enter_s", "again_s", "verdict_s")}}


def closings(found: Settings) -> Iterator[Row]:
    """Time the close of windows with many timed iterations, after the GPU's last work: the GPU is idle meanwhile."""
    x = torch.zeros(1, device="cuda")
    for how, count in (("stamped", STAMPED_COUNT), ("host", HOST_COUNT)) * ROUNDS_COUNT:
        with _hidden(is_hidden=how == "host"):
            window = gpuwatch.window(f"close {how}", settings=found).__enter__()
            for _ in window.iterations(count):
                x.add_(1.0)
        torch.cuda.synchronize()
        begin_s = time.perf_counter()
        window.__exit__(None, None, None)
        took_s = time.perf_counter() - begin_s
        launch_s = launches()  # a thread of the window still reads the times
        yield {
            "table": "closing", "how": how, "count": count, "close_s": took_s, "status": window.verdict.status.value,
            "verdict_s": time.perf_counter() - begin_s - took_s, "launch_p50_us": launch_s[0] * 1e6, "launch_p99_us": launch_s[1] * 1e6,
        }  # fmt: skip


@contextlib.contextmanager
def _hidden(*, is_hidden: bool) -> Iterator[None]:
    """Hide torch from windows that time by the host's clock."""
    hidden = sys.modules.pop("torch") if is_hidden else None
    try:
        yield
    finally:
        if hidden is not None:
            sys.modules["torch"] = hidden


@contextlib.contextmanager
def busy() -> Iterator[None]:
    over = threading.Event()

    def work() -> None:
        a, b, out = (torch.randn(4096, 4096, device="cuda") for _ in range(3))
        while not over.is_set():
            gemms(a, b, out)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def watched(name: str, pid: int, seconds: float) -> Row:
    """Measure a watcher's CPU time and memory, and the CPU time of each thread in order of thread ID."""
    before = _threads_s(pid)
    with spending(pid) as spent:
        time.sleep(seconds)
    after = _threads_s(pid)
    threads = [round(after[tid] - before.get(tid, 0.0), 5) for tid in sorted(after)]
    return {
        "table": "watching", "who": name, "cpu_ratio": spent.cpu_ratio, "memory_bytes": spent.memory_bytes,
        "threads_ratio": [each / spent.length_s for each in threads],
    }  # fmt: skip


def _threads_s(pid: int) -> dict[int, float]:
    found = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found[int(path.name)] = int((path / "schedstat").read_text().split()[0]) / 1e9
    return found


def daemons(live: Live, seconds: float) -> Iterator[Row]:
    """Measure the daemon on an idle GPU, on a busy one, and on one with an open window."""
    from gpuwatch.client.connection import connect

    pid = live.process.pid
    time.sleep(REST_S)
    yield watched("gpuwatch, idle GPU, nobody connected", pid, 2 * seconds)  # some readings are 30 s apart
    with connect(live.settings) as client:
        status = client.status()
    with busy():
        time.sleep(SETTLE_S / 2)
        with scraped(status["metrics"]):
            yield watched("gpuwatch, busy GPU, scraped", pid, seconds)
        with connect(live.settings) as client:
            yield {"table": "questions", "when": "busy", "questions": client.status()["gpus"][0]["questions"]}
        with gpuwatch.window("held open", sync=False, settings=live.settings):
            time.sleep(SETTLE_S / 2)
            yield watched("gpuwatch, busy GPU, a window open", pid, seconds)
            with connect(live.settings) as client:
                yield {"table": "questions", "when": "window", "questions": client.status()["gpus"][0]["questions"]}


def floors(seconds: float, *, are_busy: bool) -> Iterator[Row]:
    """Measure the readings of a daemon alone, in this thread, on an idle GPU or on a busy one."""
    source, over = Nvml(), threading.Event()
    device = source.devices()[0]
    plan = measure(source, device, MonotonicClock(), PlanTargets(), stop=over)
    names = ("busy GPU, scraped", "busy GPU, a window open") if are_busy else ("idle GPU, nobody connected",)
    for name in names:
        sampler = Sampler(source, plan, (), MonotonicClock(), over)
        sampler.rest.set_attended(are_busy)
        sampler.set_active("window" in name)
        with busy() if are_busy else contextlib.nullcontext():
            passes = sampler.sweeps()
            for length_s in (SETTLE_S if are_busy else REST_S, seconds):
                begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
                next(each for each in passes if time.perf_counter() > begin_s + length_s)
            ratio = (time.thread_time() - begin_cpu_s) / (time.perf_counter() - begin_s)
        yield {"table": "floor", "who": f"gpuwatch, {name}", "cpu_ratio": ratio}
    source.close()


def smi(seconds: float) -> Iterator[Row]:
    if shutil.which("nvidia-smi") is None:
        return
    command = ["nvidia-smi", _QUERY, "--format=csv", "-lms=10"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1.0)
        yield watched("nvidia-smi -lms 10, idle GPU", process.pid, seconds / 2)
        with busy():
            time.sleep(1.0)
            yield watched("nvidia-smi -lms 10, busy GPU", process.pid, seconds / 2)
    finally:
        process.kill()
        process.wait()


def calls(count: int = 5) -> Iterator[Row]:
    """Time single driver calls on an idle GPU after pauses: a pause causes most of the cost of a rare call."""
    source = Nvml()
    uuid = source.devices()[0].uuid
    asked: dict[str, Callable[[], object]] = {
        name: partial(source.read, uuid, Lane.FAST, (name,))
        for name in ("sm_clock_mhz", "event_reasons_mask", "utilization_ratio", "memory_used_bytes", "power_w", "energy_j")
    }
    asked["pulse"] = partial(source.read, uuid, Lane.PULSE, PULSE)
    asked["processes"] = partial(source.read_process_list, uuid)
    for name, ask in asked.items():
        for pause_s in PAUSES_S:
            found = []
            for _ in range(count + 1):
                time.sleep(pause_s)
                begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
                ask()
                found.append((time.perf_counter() - begin_s, time.thread_time() - begin_cpu_s))
            took_s, cpu_s = (statistics.median(each) for each in zip(*found[1:], strict=True))
            yield {"table": "call", "name": name, "pause_s": pause_s, "took_us": took_s * 1e6, "cpu_us": cpu_s * 1e6}
    source.close()


def main(arguments: list[str]) -> int:
    out = Path(arguments[0])
    out.mkdir(parents=True, exist_ok=True)
    seconds = float(arguments[1]) if len(arguments) > 1 else WATCHED_S
    parts = set(arguments[2:]) or {"start", "watching", "floor", "closing", "smi"}
    rows: list[Row] = []
    about = {"date": time.strftime("%Y-%m-%d"), "gpu": torch.cuda.get_device_name(), "versions": versions()}

    def keep(found: Iterator[Row]) -> None:
        for row in found:
            rows.append(about | row)
            print(_line(row), flush=True)
            (out / "figures-costs.json").write_text(json.dumps(rows, indent=1))

    if "start" in parts:
        compile_imports()
        keep(starts("plain", STARTS_COUNT))
        keep(starts("torch", STARTS_COUNT // 2))
    if "calls" in parts:
        keep(calls())
    if "floor" in parts:  # before this process uses the GPU: a context may keep an idle GPU at the full rate
        keep(floors(seconds, are_busy=False))
    if parts & {"watching", "closing"}:
        with (
            tempfile.TemporaryDirectory(prefix="gw") as folder,
            running(Path(folder), "nvml", environment={"GPUWATCH_LISTEN": "127.0.0.1:0", **UNFORKED}) as live,
        ):
            if "watching" in parts:
                keep(daemons(live, seconds))
            if "closing" in parts:
                keep(closings(live.settings))
    if "floor" in parts:
        keep(floors(seconds, are_busy=True))
    if "smi" in parts:
        keep(smi(seconds))
    for table, key in (("first-window", "enter_s"), ("closing", "close_s")):
        for how in sorted({row["how"] for row in rows if row["table"] == table}):
            found = [row[key] for row in rows if row["table"] == table and row["how"] == how]
            print(f"{table} {how}: minimum {min(found) * 1e3:.1f} ms, median {statistics.median(found) * 1e3:.1f} ms")
    return 0


def _line(row: Row) -> str:
    if row["table"] == "watching":
        threads = " ".join(f"{each:.2%}" for each in row["threads_ratio"] if each > 5e-5)
        return f"{row['who']:<40}{row['cpu_ratio']:>8.3%}{row['memory_bytes'] / 1e6:>7.1f} MB   threads {threads}"
    if row["table"] == "questions":
        asked = {name: f"{each['rate_hz']:.2f}/s {each['cost_ratio']:.3%}" for name, each in row["questions"].items()}
        return f"questions, {row['when']}: {asked}"
    return ", ".join(f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
