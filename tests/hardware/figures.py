"""Figures from real GPUs: the benefit of the clock's correction, comparisons, timing methods, and experiments of the essays.

    python -m tests.hardware.figures OUT_FOLDER [corrections|comparisons|methods|experiments …]

One worker process per GPU runs a share of the tables, and writes a list of rows to ``figures-N.json``.  No setting of the card
changes.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import gpuwatch

Row: TypeAlias = dict[str, Any]
TRIALS_COUNT = int(os.environ.get("TRIALS", "12"))
SECONDS = float(os.environ.get("SECONDS_A_TRIAL", "3"))
TOP_MHZ, NVBENCH_RATIO = 1980.0, 0.75  # NVBench's rule drops samples below this ratio of the card's highest clock


def corrections(number: int, of: int) -> Iterator[Row]:
    """Measure each kernel in two windows with stamps, and yield the effect of a clock correction fitted on the first half."""
    import torch

    from annotate.evidence import Timings
    from annotate.times.clock_sensitivity import NoFit
    from gpuwatch.cuda.event_marks import CudaMarks
    from tests.hardware.kernels import KERNELS
    from tests.hardware.wander import wander
    from tests.hardware.workloads import loop

    def window(call: Callable[[], object], count: int) -> Timings:
        marks = CudaMarks(torch.cuda, count + 1)
        begun = marks.begin()
        for i in range(count):
            call()
            assert begun is not None, "no graph is captured here"
            begun = marks.next(begun)
            if i % 50 == 49:
                marks._events.synchronize(marks._rows[1::5][-40])  # the GPU is at most 40 iterations behind
        timings: Timings | None = marks.timings()
        marks.close()
        assert timings is not None
        return timings

    for kernel in KERNELS[number::of]:
        call = kernel.make()
        loop(call, 3.0 if kernel.capped else 1.0)
        each_s = _once_s(call)
        count = min(14_500, int(3.0 / each_s))
        first = window(call, count)
        loop(call, 1.0)
        last = window(call, count)
        at_ns, took_s, mhz = (
            np.concatenate([getattr(part, name) for part in (first, last)]) for name in ("at_ns", "took_s", "sm_clock_mhz")
        )
        timings = Timings(at_ns, took_s, mhz)
        row = wander(kernel.name, timings)
        fit = {"refused": row.fit.reason} if isinstance(row.fit, NoFit) else asdict(row.fit)
        assert last.sm_clock_mhz is not None
        kept = last.sm_clock_mhz >= NVBENCH_RATIO * TOP_MHZ
        yield {
            "table": "corrections", "recorded": kernel.recorded, **asdict(row), "fit": fit,
            "nvbench_discards_ratio": 1.0 - float(kept.mean()),
            "nvbench_mean_s": float(last.took_s[kept].mean()) if kept.any() else None, "mean_s": float(last.took_s.mean()),
        }  # fmt: skip
        del call
        torch.cuda.empty_cache()


def _once_s(call: Callable[[], object]) -> float:
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(20):
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 20e3


def _arms(kind: str, *, differ: bool) -> tuple[Callable[..., Any], Callable[..., Any], Callable[[], tuple[Any, ...]]]:
    """Return two functions and a maker of inputs; the second function does equal work, or 0.5 % more (tiles or bytes)."""
    import torch

    if kind == "gemm":
        deep = 12864 if differ else 12800

        def matrices() -> tuple[Any, ...]:
            a = torch.randn(4096, 12864, device="cuda", dtype=torch.bfloat16)
            b = torch.randn(12864, 4096, device="cuda", dtype=torch.bfloat16)
            return a, b, torch.empty(4096, 4096, device="cuda", dtype=torch.bfloat16)

        return (
            lambda a, b, out: torch.mm(a[:, :12800], b[:12800], out=out),
            lambda a, b, out: torch.mm(a[:, :deep], b[:deep], out=out),
            matrices,
        )
    # Not a power of two: with bank conflicts, a copy of 0.5 % more bytes can take less time.
    whole = 132 * 1024 * 1000
    more = 132 * 1024 * 1005 if differ else whole

    def vectors() -> tuple[Any, ...]:
        source = torch.randn(whole + whole // 100, device="cuda")
        return source, torch.empty_like(source)

    return (
        lambda source, target: target[:whole].copy_(source[:whole]),
        lambda source, target: target[:more].copy_(source[:more]),
        vectors,
    )


def _peers(call: Callable[[], object]) -> dict[str, Callable[[], float]]:
    """Return functions that time the call with other tools, in seconds."""
    from torch.utils.benchmark import Timer
    from triton.testing import do_bench

    return {
        "do_bench mean": lambda: float(do_bench(call)) / 1e3,
        "do_bench median": lambda: float(do_bench(call, return_mode="median")) / 1e3,
        "torch Timer 0.2 s": lambda: float(Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.2).median),
    }


def comparisons(number: int, of: int) -> Iterator[Row]:
    """Run trials of two equal arms and of two arms that differ by 0.5 %, with each method of comparison."""
    import torch

    rng = random.Random(number)
    trials = [(kind, differ) for kind in ("gemm", "copy") for differ in (False, True) for _ in range(TRIALS_COUNT)]
    rng.shuffle(trials)
    for kind, differ in trials:
        fn_a, fn_b, inputs = _arms(kind, differ=differ)
        given = inputs()
        a, b = partial(fn_a, *given), partial(fn_b, *given)
        row: Row = {"table": "comparisons", "kind": kind, "differ": differ}
        for name in ("do_bench mean", "torch Timer 0.2 s"):
            row[name] = _peers(b)[name]() / _peers(a)[name]() - 1.0
        begin = time.perf_counter()
        found = gpuwatch.compare(
            {"a": fn_a, "b": fn_b}, inputs=inputs, floor_ratio=0.001, seconds=SECONDS, warm_s=0.3, check=False, watch=False,
            seed=rng.randrange(1 << 30),
        )  # fmt: skip
        row["took_s"] = time.perf_counter() - begin
        comparison = found.comparisons[0]
        assert comparison.ratio is not None
        row |= {
            "decision": comparison.decision.value, "change_ratio": comparison.change_ratio, "pairs_count": comparison.pairs_count,
            "low": comparison.ratio.low - 1.0, "high": comparison.ratio.high - 1.0,
        }  # fmt: skip
        yield row
        del a, b, given, found
        torch.cuda.empty_cache()


def methods(number: int, of: int) -> Iterator[Row]:
    """Time the same call repeatedly by each method, as a user would, and yield the scatter of the estimates."""
    import torch

    from tests.hardware.kernels import KERNELS

    names = ("gemm-4096", "gemm-8192", "conv-3x3", "copy-1g")
    for name in names[number::of]:
        call = next(kernel for kernel in KERNELS if kernel.name == name).make()
        estimates: dict[str, list[float]] = {}
        clock_mhz: float | None = None
        for _ in range(max(3, TRIALS_COUNT // 3)):
            for method, measure in _peers(call).items():
                time.sleep(0.2)
                estimates.setdefault(method, []).append(measure())
            time.sleep(0.2)
            measured = gpuwatch.bench(call, cache="warm", label=name, progress=False)
            estimates.setdefault("gpuwatch.bench median", []).append(measured.median_s)
            clock_mhz = clock_mhz or measured.clock_mhz
            corrected = measured.at_clock(clock_mhz) if clock_mhz else None
            if corrected is not None and hasattr(corrected, "time_s"):
                estimates.setdefault("gpuwatch.bench at one clock", []).append(corrected.time_s)
            took_s, mhz = measured.timings.took_s, measured.timings.sm_clock_mhz
            kept_s = took_s if mhz is None else took_s[mhz >= NVBENCH_RATIO * TOP_MHZ]
            if len(kept_s):
                estimates.setdefault("NVBench's rule on the same entries, mean", []).append(float(kept_s.mean()))
            last = measured
        for method, values in estimates.items():
            yield {
                "table": "methods", "kernel": name, "method": method, "count": len(values), "mean_s": statistics.fmean(values),
                "scatter_ratio": statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else None,
            }  # fmt: skip
        yield {
            "table": "bench", "kernel": name, "text": str(last), "status": last.verdict.status.value,
            "hazards": [hazard.rule for hazard in last.verdict.hazards], "took_s": last.attempt.took_s,
        }  # fmt: skip
        del call
        torch.cuda.empty_cache()


def experiments(number: int, of: int) -> Iterator[Row]:
    """Run small experiments of the essays: caches, timers down to microseconds, data, graphs."""
    import torch

    from tests.hardware.workloads import gemm

    x, y = torch.randn(1 << 22, device="cuda"), torch.randn(1 << 22, device="cuda")
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    vector = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
    wide = torch.randn(4096, 4096, device="cuda")
    image = torch.randn(8, 64, 56, 56, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.bfloat16)
    tiny = torch.randn(1024, device="cuda")
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "vector add 16 MB": (torch.add, (x, y)),
        "GEMM 1024": (torch.mm, (matrix[:1024, :1024].contiguous(), matrix[:1024, :1024].contiguous())),
        "GEMV 4096": (torch.mv, (matrix, vector)),
        "conv 3×3 small": (lambda i, w: torch.nn.functional.conv2d(i, w, padding=1), (image, weight)),
        "strided read": (lambda w: w[:, ::8].sum(), (wide,)),
        "add of 1024": (torch.add, (tiny, tiny)),
        "GEMM 4096": (torch.mm, (matrix, matrix.t().contiguous())),
    }
    # Any, because bench() checks these arguments.
    work: list[tuple[str, Any, Any]] = [
        (name, timer, cache)
        for name in calls
        for timer, cache in (("events", "warm"), ("events", "cold"), ("graph", "warm"), ("graph", "cold"), ("host", None))
    ]
    for name, timer, cache in work[number::of]:
        fn, args = calls[name]
        begin = time.perf_counter()
        try:
            m = gpuwatch.bench(
                fn, args=args, timer=timer, cache=cache, label=f"{name}, {timer}, {cache}", max_s=4.0, progress=False
            )
        except gpuwatch.UsageError as error:
            yield {"table": "experiments", "call": name, "timer": timer, "cache": cache, "refused": str(error)}
            continue
        yield {
            "table": "experiments", "call": name, "timer": timer, "cache": m.cache, "median_s": m.median_s, "ci_s": m.ci_s,
            "calls_count": m.calls_count, "overhead_s": m.timer_overhead_s, "issue_s": m.issue_s, "clock_mhz": m.clock_mhz,
            "status": m.verdict.status.value, "hazards": [[h.rule, h.severity] for h in m.verdict.hazards],
            "took_s": time.perf_counter() - begin, "text": str(m),
        }  # fmt: skip
    if number == 0:
        for zeros in (False, True):
            call = gemm(8192, zeros=zeros)
            m = gpuwatch.bench(call, cache="warm", flops=2 * 8192**3, dtype="bfloat16", label=f"zeros {zeros}", progress=False)
            yield {"table": "experiments", "call": "GEMM 8192 of zeros" if zeros else "GEMM 8192 of random data", "timer": m.timer,
                   "cache": m.cache, "median_s": m.median_s, "clock_mhz": m.clock_mhz, "status": m.verdict.status.value,
                   "hazards": [[h.rule, h.severity] for h in m.verdict.hazards], "text": str(m)}  # fmt: skip


TABLES = {each.__name__: each for each in (corrections, comparisons, methods, experiments)}


def take(folder: Path, names: list[str], number: int, of: int) -> None:
    """Run a worker's share of these tables, and append row by row to earlier results."""
    path = folder / f"figures-{number}.json"
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    for name in names:
        for row in TABLES[name](number, of):
            rows.append({"date": time.strftime("%Y-%m-%d"), "gpu": number, **row})
            shown = {key: value for key, value in row.items() if key not in ("scatters", "text")}
            print(json.dumps(shown, default=_plain)[:400], flush=True)
            path.write_text(json.dumps(rows, default=_plain, indent=1))


def main(arguments: list[str]) -> int:
    out, *what = arguments
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if "--worker" in what:
        at = what.index("--worker")
        take(folder, what[:at], int(what[at + 1]), int(what[at + 2]))
        return 0
    import torch

    count = torch.cuda.device_count()
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.hardware.figures", out, *(what or TABLES), "--worker", str(number), str(count)],
            env={
                **os.environ, "CUDA_VISIBLE_DEVICES": str(number), "GPUWATCH_STATE": str(folder / "state"),
                "GPUWATCH_SOCKET": f"/tmp/gpuwatch-figures-{folder.resolve().name}/s.sock",  # a separate socket: the daemon of an earlier run may still be alive
            },
        )
        for number in range(count)
    ]  # fmt: skip
    return max(worker.wait() for worker in workers)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
