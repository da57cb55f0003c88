"""The essays' experiments on a real GPU, each condition in a window.

    python -m tests.hardware.essays OUT [EXPERIMENT …]

``OUT/essays.json`` holds a row per condition, in the order of the evidence in ``OUT/essays.capsule``.  The judge runs when the
page is made, so the table always shows the present judge.  Run ``cards`` on each card to compare cards.  No experiment
changes a setting of the card.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import gpuwatch
from annotate.capsule.pack import pack
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.gpuwatch.live import running

Row: TypeAlias = dict[str, Any]
Call: TypeAlias = Callable[[], object]
WARM_S, WINDOW_S, SHORT_S = 3.0, 3.0, 1.5
# ``methods`` and ``cupti`` last: a profiler's CUPTI stays attached to its process.
EXPERIMENTS = ("contention", "trial_counts", "power_cap", "aggregations", "caches", "flags", "launches", "methods", "cupti")
_CUPTI_TURNS = 6
_TRIMMED_RATIO = 0.1  # trimmed at each end, as in the essay
_KERNEL = r"""
extern "C" __global__ void waves(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i], sum = 0.f;
  for (int k = 1; k <= 64; ++k) sum += sinf(x * k) / (1.f + expf(-x * k));
  out[i] = sum;
}
"""


class Essays:
    """The experiments; each yields rows with the run of the window."""

    def __init__(self, settings: Settings) -> None:
        import torch

        self.settings, self.torch = settings, torch
        tiny = torch.randn(1024, device="cuda")
        self.tiny, self.tiny_out = tiny, [torch.empty_like(tiny) for _ in range(2)]

    def of(self, names: Sequence[str]) -> Iterator[Row]:
        for name in names:
            for row in getattr(self, name)():
                yield {"experiment": name.replace("_", " "), **row}
            self.torch.cuda.empty_cache()

    def window(self, label: str, **claim: Any) -> gpuwatch.Window:
        return gpuwatch.window(label, settings=self.settings, **claim)

    def cards(self) -> Iterator[Row]:
        """Measure kernels whose times other cards can reproduce."""
        from tests.hardware.kernels import KERNELS
        from tests.hardware.workloads import loop

        for name in ("gemm-4096", "attention", "conv-3x3", "softmax-fp32", "copy-1g"):
            kernel = next(each for each in KERNELS if each.name == name)
            call = kernel.make()
            for _ in range(2):
                loop(call, WARM_S if kernel.capped else 1.0)
                yield self._timed(name, call, WINDOW_S)
            del call
            self.torch.cuda.empty_cache()

    def contention(self) -> Iterator[Row]:
        """Measure the same GEMM with the GPU and the CPUs idle or busy."""
        from tests.hardware.workloads import beside, gemm, hogging, loop

        call = gemm(4096)
        for gpu, cpu in itertools.product((False, True), repeat=2):
            with contextlib.ExitStack() as busy:
                if gpu:
                    busy.enter_context(beside("vector-adds"))
                if cpu:
                    busy.enter_context(hogging(2 * (os.cpu_count() or 1)))
                loop(call, WARM_S)
                condition = f"GPU {'busy' if gpu else 'free'}, processors {'busy' if cpu else 'free'}"
                yield self._timed(condition, call, WINDOW_S)

    def trial_counts(self) -> Iterator[Row]:
        """Measure the first 10 to 30 000 calls after a pause of three seconds; the power cap engages in the longer windows."""
        from tests.hardware.workloads import gemm, loop

        call = gemm(4096)
        for count in (10, 100, 1_000, 10_000, 30_000):
            loop(call, 0.2)
            time.sleep(3.0)
            yield self._timed(f"{count} calls from idle", call, count=count)

    def power_cap(self) -> Iterator[Row]:
        """Measure a large product back to back and with sleeps, which hide the power cap, and a smaller one back to back."""
        from tests.hardware.workloads import gemm, loop

        call = gemm(16384)
        for pause_s in (0.0, 0.02, 0.1):
            loop(call, WARM_S, pause_s=pause_s)
            said = f"GEMM 16384, sleeps of {pause_s * 1e3:.0f} ms" if pause_s else "GEMM 16384 back to back"
            yield self._timed(said, call, WINDOW_S, pause_s=pause_s)
        call = gemm(2048)
        loop(call, 1.0)
        yield self._timed("GEMM 2048 back to back", call, WINDOW_S)

    def aggregations(self) -> Iterator[Row]:
        """Compute statistics of the same call with idle and with busy CPUs, synchronised after each call."""
        from tests.hardware.workloads import gemm, hogging, loop

        call = gemm(1024)
        for hogs_count in (0, 3 * (os.cpu_count() or 1)):
            with hogging(hogs_count):
                loop(call, 1.0)
                times_s: list[float] = []
                with self.window(f"aggregation, {hogs_count} hogs") as window:
                    end_s = time.perf_counter() + SHORT_S
                    while (begin_s := time.perf_counter()) < end_s:
                        call()
                        self.torch.cuda.synchronize()
                        times_s.append(time.perf_counter() - begin_s)
                    window.record(times_s)
            yield self._row(window, "processors busy" if hogs_count else "processors free", times_s)

    def caches(self) -> Iterator[Row]:
        """Run ``gpuwatch.bench`` with warm and with cold caches."""
        matrix, vector = (
            self.torch.randn(*shape, device="cuda", dtype=self.torch.bfloat16) for shape in ((4096, 4096), (4096,))
        )
        x, y = (self.torch.randn(1 << 22, device="cuda") for _ in range(2))
        for name, function, args in (
            ("GEMV 4096", self.torch.mv, (matrix, vector)),
            ("vector add 16 MB", self.torch.add, (x, y)),
        ):
            for cache in ("warm", "cold"):
                m = gpuwatch.bench(
                    function,
                    args=args,
                    cache=cache,
                    label=f"{name}, {cache}",
                    max_s=3.0,
                    progress=False,
                    settings=self.settings,
                )
                yield {
                    "condition": f"{name}, {cache} cache", "run": m.run, "count": len(m.timings.took_s), "median_s": m.median_s,
                    "mean_s": float(m.timings.took_s.mean()),
                }  # fmt: skip

    def methods(self) -> Iterator[Row]:
        """Measure the same call by each timing method in a window, after a pause of 0.2 s, as a script would."""
        from tests.hardware.workloads import gemm

        calls = {"GEMM 4096": gemm(4096), "add of 1024": self._add}
        measures = {name: self._methods(call) for name, call in calls.items()}
        for method in measures["GEMM 4096"]:
            for name in calls:
                measure = measures[name][method]
                measure()  # compiles, captures, allocates
                time.sleep(0.2)
                with self.window(f"{name}, {method}") as window:
                    estimates_s = [measure() for _ in range(5)]
                yield self._row(window, f"{name}, {method}", estimates_s)

    def _methods(self, call: Call) -> dict[str, Callable[[], float]]:
        from torch.utils.benchmark import Timer
        from triton.testing import do_bench, do_bench_cudagraph

        torch = self.torch

        def events() -> float:
            return statistics.median(_events(call, count=200))

        def host() -> float:
            torch.cuda.synchronize()
            begin_s = time.perf_counter()
            for _ in range(200):
                call()
                torch.cuda.synchronize()
            return (time.perf_counter() - begin_s) / 200

        def profiler() -> float:
            kinds = [torch.profiler.ProfilerActivity.CUDA]
            with torch.profiler.profile(activities=kinds) as profile:
                for _ in range(200):
                    call()
                torch.cuda.synchronize()
            kernels = [each for each in profile.events() if each.device_type == torch.autograd.DeviceType.CUDA]
            return float(sum(each.device_time for each in kernels)) / 200 / 1e6

        return {
            "events": events, "host clock": host,
            "do_bench": lambda: float(do_bench(call)) / 1e3, "do_bench_cudagraph": lambda: float(do_bench_cudagraph(call)) / 1e3,
            "torch Timer": lambda: float(Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.2).median),
            "torch profiler": profiler,
        }  # fmt: skip

    def launches(self) -> Iterator[Row]:
        """Launch a small kernel in each way, timed by the host."""
        torch = self.torch
        graphs = [self._graph(out).replay for out in self.tiny_out]
        adds = [partial(torch.add, self.tiny, 1.0, out=out) for out in self.tiny_out]
        for name, call in (
            ("eager", self._add),
            ("eager, alternating pointers", self._turns(adds)),
            ("graph", graphs[0]),
            ("graphs in turn, alternating pointers", self._turns(graphs)),
        ):
            yield self._launched(f"launches, {name}", name, call)

    def _launched(self, label: str, condition: str, call: Call) -> Row:
        issued_s: list[float] = []
        with self.window(label) as window:
            end_s = time.perf_counter() + SHORT_S
            while time.perf_counter() < end_s:
                begin_s = time.perf_counter()
                for _ in range(100):
                    call()
                issued_s.append((time.perf_counter() - begin_s) / 100)
                self.torch.cuda.synchronize()
        return self._row(window, condition, issued_s)

    def cupti(self) -> Iterator[Row]:
        """Time launches without CUPTI, while it collects, and attached only, in fresh processes by turns."""
        states = ("without", "collecting", "attached")
        found = [{state: _fresh(self.settings, "launched_beside", state) for state in states} for _ in range(_CUPTI_TURNS)]
        for state in states:
            ratios = [each[state]["median_s"] / each["without"]["median_s"] for each in found]
            yield {**found[-1][state], "ratios": None if state == "without" else ratios}

    def launched_beside(self, state: str) -> Iterator[Row]:
        """Time launches of a small kernel in this process, in this state of CUPTI."""
        profile = self.torch.profiler.profile(activities=[self.torch.profiler.ProfilerActivity.CUDA])
        for _ in range(20_000):
            self._add()
        self.torch.cuda.synchronize()
        if state == "attached":
            with profile:
                self._add()
                self.torch.cuda.synchronize()
        with profile if state == "collecting" else contextlib.nullcontext():
            yield self._launched(f"CUPTI {state}", f"eager, CUPTI {state}", self._add)

    def flags(self) -> Iterator[Row]:
        """Compare the same source with other compiler flags by ``gpuwatch.compare``."""
        cupy = importlib.import_module("cupy")

        source = cupy.random.default_rng(0).standard_normal(1 << 22, dtype=cupy.float32)
        out = cupy.empty_like(source)
        options: dict[str, tuple[str, ...]] = {
            "default": (), "fast math": ("--use_fast_math",), "16 registers": ("--maxrregcount=16",),
        }  # fmt: skip
        calls = {name: _compiled(cupy, each, source, out) for name, each in options.items()}
        found = gpuwatch.compare(calls, seconds=4.0, warm_s=1.0, check=False, settings=self.settings)
        assert found.window is not None
        for comparison in found.comparisons:
            yield {
                "condition": f"{comparison.b} against default", "run": found.window.run_id, "count": comparison.pairs_count,
                "said": str(comparison).splitlines()[0],
            }  # fmt: skip

    def _add(self) -> object:
        return self.torch.add(self.tiny, 1.0, out=self.tiny_out[0])

    @staticmethod
    def _turns(calls: Sequence[Call]) -> Call:
        turn = itertools.cycle(calls)

        def call() -> object:
            return next(turn)()

        return call

    def _graph(self, out: Any) -> Any:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            self.torch.add(self.tiny, 1.0, out=out)
        return graph

    def _timed(
        self, condition: str, call: Call, seconds: float | None = None, *, count: int = 1 << 30, pause_s: float = 0.0
    ) -> Row:
        """Measure one window whose calls are stamped one by one."""
        until_s = time.perf_counter() + (seconds if seconds is not None else 60.0)
        begin_s = time.perf_counter()
        with self.window(condition) as window:
            done = 0
            while done < count and time.perf_counter() < until_s:
                with window.iteration():
                    call()
                done += 1
                if pause_s:
                    self.torch.cuda.synchronize()
                    time.sleep(pause_s)
                elif done % 200 == 0:
                    self.torch.cuda.synchronize()
        return {
            "condition": condition,
            "run": window.run_id,
            "count": done,
            "calls_a_second": done / (time.perf_counter() - begin_s),
        }

    def _row(self, window: gpuwatch.Window, condition: str, times_s: list[float]) -> Row:
        ordered = np.sort(np.array(times_s))
        cut = int(len(ordered) * _TRIMMED_RATIO)
        return {
            "condition": condition, "run": window.run_id, "count": len(ordered), "least_s": float(ordered[0]),
            "median_s": float(np.median(ordered)), "mean_s": float(ordered.mean()),
            "trimmed_s": float(ordered[cut : len(ordered) - cut].mean()),
            "scatter_ratio": float(ordered.std(ddof=1) / ordered.mean()) if len(ordered) > 1 else None,
        }  # fmt: skip


def _compiled(cupy: Any, options: tuple[str, ...], source: Any, out: Any) -> Call:
    kernel = cupy.RawKernel(_KERNEL, "waves", options=options)
    return lambda: kernel(((source.size + 255) // 256,), (256,), (source, out, np.int32(source.size)))


def _fresh(settings: Settings, experiment: str, *of: str) -> Row:
    """Return the row of this experiment, run in a fresh process."""
    code = (
        "import json, pickle, sys; from tests.hardware.essays import Essays\n"
        "settings, experiment, of = pickle.loads(sys.stdin.buffer.read())\n"
        "print(json.dumps(next(getattr(Essays(settings), experiment)(*of))))"
    )
    given = pickle.dumps((settings, experiment, of))
    done = subprocess.run([sys.executable, "-c", code], input=given, stdout=subprocess.PIPE, check=True)
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def _events(call: Call, *, count: int) -> list[float]:
    """Return the seconds of each call by a pair of events, back to back."""
    import torch

    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for first, last in pairs:
        first.record()
        call()
        last.record()
    torch.cuda.synchronize()
    return [first.elapsed_time(last) / 1e3 for first, last in pairs]


def main(out: Path, names: Sequence[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gw") as folder, running(Path(folder), "nvml") as live:
        rows = []
        for row in Essays(live.settings).of(names):
            rows.append({"date": time.strftime("%Y-%m-%d"), **row})
            print(json.dumps({**row, "run": None})[:200], flush=True)
        time.sleep(2.0)  # wait until the last readings are stored
        with Reader(live.settings.state) as reader:
            runs = [reader.run(row["run"]) for row in rows]
            (out / "essays.capsule").write_bytes(pack([reader.evidence(run, run.uuids[0]) for run in runs]))
        (out / "essays.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or EXPERIMENTS)
