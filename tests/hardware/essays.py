"""The essays' own experiments that are no hazard of the campaign: rows of figures.py's table of that name."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

import gpuwatch

Row: TypeAlias = dict[str, Any]


def essays(number: int, of: int) -> Iterator[Row]:
    """A row an experiment: one GPU works, and busy processors are all the machine's."""
    if number != 0:
        return
    yield from _contention()
    yield from _trial_counts()
    yield from _instances(of)


def _judged(experiment: str, condition: str, window: gpuwatch.Window, times_s: Sequence[float], **more: Any) -> Row:
    verdict = window.verdict
    return {
        "table": "essays", "experiment": experiment, "condition": condition, "median_s": float(np.median(times_s)),
        "mean_s": float(np.mean(times_s)), "count": len(times_s), "status": verdict.status.value,
        "hazards": [[hazard.rule, hazard.severity] for hazard in verdict.hazards], **more,
    }  # fmt: skip


def _contention() -> Iterator[Row]:
    """The same GEMM with the GPU and the processors free or busy."""
    from tests.hardware.workloads import beside, gemm, hogging, loop

    call = gemm(4096)
    for gpu, cpu in itertools.product((False, True), repeat=2):
        with contextlib.ExitStack() as busy:
            if gpu:
                busy.enter_context(beside("vector-adds"))
            if cpu:
                busy.enter_context(hogging(2 * (os.cpu_count() or 1)))
            loop(call, 3.0)
            with gpuwatch.window(f"gpu busy {gpu}, cpu busy {cpu}") as window:
                begin_s = time.perf_counter()
                times_s = _timed(call, 3.0)
                a_second = len(times_s) / (time.perf_counter() - begin_s)
                window.record(times_s)
            condition = f"GPU {'busy' if gpu else 'free'}, processors {'busy' if cpu else 'free'}"
            yield _judged("contention", condition, window, times_s, calls_a_second=a_second)


def _trial_counts() -> Iterator[Row]:
    """The first so many calls after a pause of three seconds: the power cap comes while they run."""
    from tests.hardware.workloads import gemm

    call = gemm(4096)
    for count in (10, 100, 1_000, 10_000, 30_000):
        _timed(call, 0.2)
        time.sleep(3.0)
        with gpuwatch.window(f"{count} trials") as window:
            times_s = _timed(call, count=count)
            window.record(times_s)
        yield _judged("trial count", f"{count} calls from idle", window, times_s)


_BENCH = """
import json, gpuwatch
from tests.hardware.workloads import copy, gemm
for name, call in (("GEMM 4096", gemm(4096)), ("copy of 1 GiB", copy())):
    m = gpuwatch.bench(call, cache="warm", label=name, progress=False)
    print(json.dumps({"name": name, "run": m.run, "median_s": m.median_s, "status": m.verdict.status.value, "clock_mhz": m.clock_mhz}))
"""


def _instances(of: int) -> Iterator[Row]:
    """The same calls on each GPU of the machine, and what is said of comparing two of them."""
    found: dict[str, list[Row]] = {}
    for number in range(of):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(number)}
        done = subprocess.run([sys.executable, "-c", _BENCH], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        for row in map(json.loads, done.stdout.splitlines()):
            found.setdefault(row["name"], []).append(row)
    for name, rows in found.items():
        said: Row = {}
        if of > 1:
            command = [sys.executable, "-m", "gpuwatch", "compare", rows[0]["run"], rows[1]["run"], "--json"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            whole = json.loads(done.stdout)["comparisons"][0]
            # Without the cards' identities.
            said = {
                "decision": whole["decision"],
                "ratio": whole["ratio"],
                "reasons": [_masked(each) for each in whole["reasons"]],
            }
        yield {"table": "essays", "experiment": "instances", "condition": name, "each": rows, "said": said}


def _masked(text: str) -> str:
    return re.sub(r"GPU-[0-9a-f-]{36}", "GPU-…", text)


def _timed(call: Callable[[], object], seconds: float | None = None, *, count: int = 1 << 30) -> list[float]:
    """Seconds of each call by events, back to back, for so long or so many."""
    import torch

    pairs: list[tuple[Any, Any]] = []
    until_s = time.perf_counter() + (seconds if seconds is not None else 3600.0)
    while len(pairs) < count and time.perf_counter() < until_s:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        pairs.append((first, last))
        if len(pairs) % 50 == 0:
            pairs[-40][1].synchronize()
    torch.cuda.synchronize()
    return [first.elapsed_time(last) / 1e3 for first, last in pairs]
