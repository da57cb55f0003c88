"""The demo's three benchmarks for a real GPU."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuwatch import clock
from gpuwatch.client.window import Window
from gpuwatch.comparing import selftest

_ROOM_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: its purpose, its preparation (outside the window), and its measured part."""

    name: str
    says: str
    prepare: Callable[[], Any]
    measure: Callable[[Window], Any]


def torch_with_gpu() -> Any | None:  # torch is not a dependency, so it has no type here
    """Return torch if it is installed and finds a GPU with 4 GiB free; else None."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < _ROOM_BYTES:
        return None
    return torch


def benchmarks(torch: Any) -> Iterator[Benchmark]:
    """Yield the three benchmarks, and empty torch's memory cache between them."""
    yield _copy(torch)
    torch.cuda.empty_cache()
    yield _from_idle(torch)
    torch.cuda.empty_cache()
    yield _with_sleeps(torch)


def _plain(work: Callable[[], Any]) -> Callable[[Window], Any]:
    return lambda _window: work()


def _repeat(torch: Any, step: Callable[[], Any], seconds: float, *, at_once: int = 50) -> None:
    """Repeat a step for some seconds, queued in batches: the GPU is never idle and the queue stays short."""
    until_ns = clock.now_ns() + round(seconds * 1e9)
    previous = None
    while clock.now_ns() < until_ns:
        for _ in range(at_once):
            step()
        done = torch.cuda.Event()
        done.record()
        if previous is not None:
            previous.synchronize()
        previous = done
    torch.cuda.synchronize()


def _copy(torch: Any) -> Benchmark:
    run = partial(_repeat, torch, selftest.make_copy(torch), 3.0, at_once=20)
    return Benchmark("copy-1gib", "1 GiB copies, warmed for 3 s", run, _plain(run))


def _from_idle(torch: Any) -> Benchmark:
    multiply = selftest.make_gemm(torch, 4096)

    def prepare() -> None:
        multiply()
        torch.cuda.synchronize()
        threading.Event().wait(3.0)

    says = "4096³ bf16 products straight from idle"
    return Benchmark("gemm-from-idle", says, prepare, _plain(partial(_repeat, torch, multiply, 3.0)))


def _with_sleeps(torch: Any) -> Benchmark:
    multiply = selftest.make_gemm(torch, 8192)

    def measure(window: Window) -> None:
        until_ns = clock.now_ns() + 3_000_000_000
        while clock.now_ns() < until_ns:
            with window.iteration():  # the timed part runs at a clock that the sleeps raised
                for _ in range(8):
                    multiply()
            torch.cuda.synchronize()
            threading.Event().wait(0.1)

    prepare = partial(_repeat, torch, multiply, 1.0, at_once=8)
    return Benchmark("gemm-with-sleeps", "8192³ bf16 products with 100 ms sleeps between", prepare, measure)
