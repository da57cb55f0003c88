"""Seven harnesses on one GEMM, five or ten runs each after a second of idle: numbers, verdicts, and numbers at one clock.

python -m tests.hardware.harnesses OUT [SECONDS [NAME…]]    on a GPU with torch, triton, CuPy and pytest-benchmark; writes OUT/harnesses.json
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpuwatch
from gpuwatch import auto
from gpuwatch.harness import session

RUNS_COUNT = 10
FEWER_RUNS = {"gpuwatch.do_bench": 5, "triton.testing.do_bench_cudagraph": 5}
IDLE_S = 1.0  # pause before each run, in which an H200's clock returns to the maximum and the power controller settles
SIDE = 4096  # side of the square float16 matrices: a product takes 0.2 ms, at the power cap in the long run
_TEST = """
import time

import pytest
import torch

@pytest.mark.parametrize("number", range({count}))
def test_product(benchmark, number):
    a, b = (torch.randn({side}, {side}, device="cuda", dtype=torch.float16) for _ in "ab")
    torch.matmul(a, b)
    torch.cuda.synchronize()
    time.sleep({idle_s})
    benchmark(torch.matmul, a, b)
"""

Row = dict[str, object]


def main(folder: Path, seconds: float, names: Sequence[str] = ()) -> None:
    """Run each harness, or the named ones, until the time is up, and write the results."""
    deadline_s = time.monotonic() + seconds
    # First, because a context of this process would be another process on the GPU for pytest's child process.
    rows: list[Row] = _run_pytest(folder) if not names or "pytest-benchmark" in names else []
    torch = importlib.import_module("torch")
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16) for _ in "ab")

    def product() -> Any:  # a tensor
        return torch.matmul(a, b)

    product()
    torch.cuda.synchronize()
    for name, measure in _harnesses(torch, product):
        if names and name not in names:
            continue
        for _ in range(FEWER_RUNS.get(name, RUNS_COUNT)):
            if time.monotonic() > deadline_s:
                break
            torch.cuda.synchronize()
            time.sleep(IDLE_S)
            began_s = time.monotonic()
            try:
                rows.append({"harness": name, **measure(), "took_s": time.monotonic() - began_s})
            except Exception as error:  # noqa: BLE001 - the other harnesses are still of use
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                break
    session.current_session().judge()
    for row in rows:
        row.update(row.pop("attached", {}) or {})  # type: ignore[call-overload]  # plain data
    versions = {each: importlib.metadata.version(each) for each in ("torch", "triton", "pytest-benchmark") if _is_there(each)}
    cupy = [each.metadata["Name"] for each in importlib.metadata.distributions() if each.metadata["Name"].startswith("cupy")]
    versions |= {"cupy": importlib.metadata.version(cupy[0])} if cupy else {}
    found = {"gpu": torch.cuda.get_device_name(), "side": SIDE, "idle_s": IDLE_S, "versions": versions, "rows": rows}
    (folder / "harnesses.json").write_text(json.dumps(found, indent=1) + "\n")
    _show(rows)


def _is_there(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def _harnesses(torch: Any, product: Callable[[], Any]) -> list[tuple[str, Callable[[], Row]]]:
    def newest() -> dict[str, object]:
        return session.current_session().windows[-1].attached

    def do_bench() -> Row:
        testing = importlib.import_module("triton.testing")
        return {"number_s": 1e-3 * testing.do_bench(product), "attached": newest()}

    def do_bench_cudagraph() -> Row:
        testing = importlib.import_module("triton.testing")
        return {"number_s": 1e-3 * testing.do_bench_cudagraph(product), "attached": newest()}

    def own_do_bench() -> Row:
        return {"number_s": 1e-3 * gpuwatch.do_bench(product, rep=1500), "attached": newest()}

    def timer() -> Row:
        kind = importlib.import_module("torch.utils.benchmark").Timer
        measured = kind("product()", globals={"product": product}, label="product").blocked_autorange()
        return {"number_s": measured.median, "attached": newest()}

    def cupy() -> Row:
        cp = importlib.import_module("cupy")
        if "cupy" not in kept:
            kept["cupy"] = [cp.random.standard_normal((SIDE, SIDE), dtype=cp.float32).astype(cp.float16) for _ in "ab"]
        result = importlib.import_module("cupyx.profiler").benchmark(cp.matmul, tuple(kept["cupy"]), n_repeat=500)
        return {"number_s": float(result.gpu_times[0].mean()), "attached": newest()}

    def events() -> Row:
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(500)]
        with gpuwatch.window("plain events") as w:
            for (first, last), _ in zip(pairs, w.iterations(len(pairs)), strict=True):
                first.record()
                product()
                last.record()
            torch.cuda.synchronize()
        number_s = 1e-3 * statistics.mean(first.elapsed_time(last) for first, last in pairs)
        return {"number_s": number_s, "attached": session.attachment(w.verdict)}

    kept: dict[str, Any] = {}
    return [
        ("triton.testing.do_bench", do_bench),
        ("gpuwatch.do_bench", own_do_bench),
        ("triton.testing.do_bench_cudagraph", do_bench_cudagraph),
        ("torch.utils.benchmark.Timer", timer),
        ("cupyx.profiler.benchmark", cupy),
        ("plain events", events),
    ]


def _run_pytest(folder: Path) -> list[Row]:
    """Run pytest-benchmark in a separate process, and return a row per benchmark, or none without a report."""
    test, report = folder / "test_product.py", folder / "benchmark.json"
    test.write_text(_TEST.format(side=SIDE, count=RUNS_COUNT, idle_s=IDLE_S))
    timer = "--benchmark-timer=gpuwatch.harness.synchronized_timer.synchronized"
    plugins = ["-p", "no:cacheprovider", "-p", "pytest_benchmark.plugin", "-p", "pytest_gpuwatch"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--gpuwatch", timer, f"--benchmark-json={report}", str(test)]
    # Plug-ins by name: on a lent machine the packages may be on PYTHONPATH without being installed.
    environment = dict(os.environ) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    print(ended.stdout[-3000:], ended.stderr[-1000:], flush=True)
    if not report.exists():
        return []
    return [
        {
            "harness": "pytest-benchmark",
            "number_s": found["stats"]["mean"],
            "attached": found["extra_info"].get("gpuwatch", {}),
            "took_s": found["stats"]["total"],
        }
        for found in json.loads(report.read_text())["benchmarks"]
    ]


def _show(rows: list[Row]) -> None:
    for row in rows:
        print(*(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in row.items()))
    print(auto.report())


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    main(out, float(sys.argv[2]) if len(sys.argv) > 2 else 150.0, sys.argv[3:])
