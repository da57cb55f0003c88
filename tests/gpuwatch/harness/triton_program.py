"""A program for the real Triton on virtual time: do_bench with and without gpuwatch, and all windows, with results as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import types
from typing import Any

import triton
import triton.language as tl
import triton.testing

from gpuwatch import auto

MODES = ("min", "max", "mean", "median", "all")


class Virtual:
    """The time of a virtual GPU in milliseconds, and the count of calls of ``work``."""

    now_ms = 0.0
    calls_count = 0


class VirtualEvent:
    def __init__(self, **_: bool) -> None:
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = Virtual.now_ms

    def elapsed_time(self, last: VirtualEvent) -> float:
        return last.at_ms - self.at_ms


class VirtualInterface:
    Event = VirtualEvent

    @staticmethod
    def synchronize() -> None:
        pass


class VirtualDriver:
    def get_device_interface(self) -> Any:
        return VirtualInterface

    def get_empty_cache_for_benchmark(self) -> bytes:
        return bytes(1 << 20)

    def clear_cache(self, cache: bytes) -> None:
        Virtual.now_ms += 0.25

    def get_benchmarker(self) -> Any:
        return triton.testing.do_bench


def work() -> None:
    """Advance the time by one of five durations, in turn."""
    Virtual.calls_count += 1
    Virtual.now_ms += 1.0 + 0.125 * (Virtual.calls_count % 5)


def fail() -> None:
    raise ZeroDivisionError("of the measured function")


def both(function: Any, **asked: Any) -> list[Any]:
    """Return the results of the original and of the watched function, from the same state."""
    found = []
    for each in (function.__gpuwatch_original__, function):
        Virtual.now_ms, Virtual.calls_count = 0.0, 0
        found.append(each(work, **asked))
    return found


def pretend_torch() -> None:
    """Install a mock torch whose graphs replay virtual work, for Triton's do_bench_cudagraph."""

    class Graph:
        begun_ms = calls_ms = 0.0

        def capture_end(self) -> None:
            self.calls_ms = Virtual.now_ms - self.begun_ms
            Virtual.now_ms = self.begun_ms

        def replay(self) -> None:
            Virtual.now_ms += self.calls_ms

    @contextlib.contextmanager
    def graph(captured: Graph) -> Any:
        captured.begun_ms = Virtual.now_ms
        yield captured
        captured.capture_end()

    torch: Any = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(
        CUDAGraph=Graph, Event=VirtualEvent, Stream=object, graph=graph, stream=lambda _: contextlib.nullcontext(),
        synchronize=lambda: None, is_initialized=lambda: False,
    )  # fmt: skip
    sys.modules["torch"] = torch


def scale(n: Any, BLOCK: tl.constexpr) -> None:  # noqa: N803 - as Triton names them
    tl.arange(0, BLOCK) * n


def pass_time(_arguments: object) -> None:
    """Advance the time by a long kernel's duration: after a short one, Triton would interpret 500 calls per trial."""
    Virtual.now_ms += 20.0


def tune() -> str:
    configurations = [triton.Config({"BLOCK": block}, pre_hook=pass_time) for block in (16, 32, 64)]
    tuned: Any = triton.autotune(configs=configurations, key=["n"])(triton.jit(scale))
    for n in (5, 5, 6):
        tuned[(1,)](n)
    return str(tuned.best_config)


def main() -> None:
    triton.runtime.driver.set_active(VirtualDriver())
    modes = {mode: both(triton.testing.do_bench, return_mode=mode) for mode in MODES}
    quantiles = both(triton.testing.do_bench, quantiles=[0.5, 0.2])
    wrong = []
    for asked in ({"return_mode": "middle"}, {"reps": 3}):
        try:
            triton.testing.do_bench(work, **asked)
        except (AssertionError, TypeError) as error:
            wrong.append(type(error).__name__)
    try:
        triton.testing.do_bench(fail)
    except ZeroDivisionError as error:
        wrong.append(str(error))
    is_restored = "clear_cache" not in vars(triton.runtime.driver.active)
    best = tune()
    pretend_torch()
    graph = both(triton.testing.do_bench_cudagraph, return_mode="all")
    print(json.dumps({
        "modes": modes, "quantiles": quantiles, "graph": graph, "wrong": wrong, "is_restored": is_restored, "best": best,
        "windows": auto.results(),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
