"""A program for the real torch: Timer's three methods and inductor's lock around benchmarks, with results as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
from typing import Any

import torch
from torch.utils.benchmark import Timer

from gpuwatch import auto
from gpuwatch.process import tampering


def measure() -> dict[str, Any]:
    timer = Timer("a + 1", globals={"a": torch.zeros(10)}, label="add", description="ten")
    blocked = timer.blocked_autorange(min_run_time=0.02)
    adaptive = timer.adaptive_autorange(min_run_time=0.01, max_run_time=0.05)
    single = Timer("a + 1", globals={"a": torch.zeros(10)}).timeit(50)
    failed = ""
    try:
        Timer("1 / 0").timeit(2)
    except ZeroDivisionError as error:
        failed = str(error)
    measured = {"blocked": blocked, "adaptive": adaptive, "single": single}
    return {
        "failed": failed,
        "measured": {
            name: {"calls_count": each.number_per_run, "raw_s": each.raw_times, "run": each.metadata["gpuwatch"]["run"]}
            for name, each in measured.items()
        },
        "statuses": lambda: [each.metadata["gpuwatch"]["status"] for each in measured.values()],
    }


def compile_something() -> None:
    """Run benchmarks like inductor, inside and outside a compilation, through torch's callbacks and lock."""
    from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler
    from torch._inductor.runtime import benchmarking

    benchmarking.gpu_benchmark_lock(lambda: None)()
    about = CallbackArgs(CallbackTrigger.DYNAMO, "0/0")
    with callback_handler.install_callbacks(about.callback_trigger, about.compile_id):
        for _ in range(3):
            with benchmarking.maybe_gpu_benchmark_lock(), benchmarking.maybe_gpu_benchmark_lock():
                Timer("1 + 1").timeit(2)


def main() -> None:
    found = measure()
    compile_something()
    with contextlib.redirect_stdout(io.StringIO()):
        # The example runs in this process, because importing torch takes seconds.
        runpy.run_path("examples/harness/torch_timer.py", run_name="__main__")
    tampered = tampering.replaced()
    windows = auto.results()
    statuses = found.pop("statuses")
    print(json.dumps({**found, "statuses": statuses(), "tampered": tampered, "windows": windows, "report": auto.report()}))


if __name__ == "__main__":
    main()
