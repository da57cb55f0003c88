"""Windows with a deliberate hazard on a real GPU: the action, and the findings that the verdict must have.

No setting of the card changes, so heat, brakes, memory clocks and errors are left to the simulator.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

import gpuwatch
from tests.hardware.workloads import beside, gemm, loop

Body = Callable[[gpuwatch.Window], object]


@dataclass(frozen=True)
class Injection:
    """A hazard: the window's body, the actions before and during the window, and rules, one of which must find the hazard."""

    name: str
    rules: tuple[str, ...]
    body: Body
    before: Callable[[], object] = lambda: None
    beside: Callable[[], AbstractContextManager[object]] = nullcontext
    status: str = "flagged|rejected"


def steady(call: Callable[[], object], seconds: float = 3.2, **kind: Any) -> Body:
    return lambda _: loop(call, seconds, **kind)


def timed(call: Callable[[], object], seconds: float = 2.0) -> Body:
    def body(window: gpuwatch.Window) -> None:
        until = time.monotonic() + seconds
        count = 0
        while time.monotonic() < until:
            with window.iteration():
                call()
            count += 1
            if count % 50 == 0:
                torch.cuda.current_stream().synchronize()

    return body


def declaring(call: Callable[[], object], **facts: Any) -> Body:
    def body(window: gpuwatch.Window) -> None:
        window.declare(**facts)
        timed(call)(window)

    return body


def _no_sync(call: Callable[[], object]) -> Body:
    def body(window: gpuwatch.Window) -> None:
        times = []
        for _ in range(900):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        window.record(times)

    return body


def _side_stream(call: Callable[[], object]) -> Body:
    def body(window: gpuwatch.Window) -> None:
        side = torch.cuda.Stream()
        times = []
        for _ in range(300):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            with torch.cuda.stream(side):
                for _ in range(5):
                    call()
            last.record()
            side.synchronize()
            last.synchronize()
            times.append(first.elapsed_time(last) / 1e3)
        window.record(times)

    return body


def _side_stream_iterations(call: Callable[[], object]) -> Body:
    """Record the window's own iterations around work on another stream."""

    def body(window: gpuwatch.Window) -> None:
        side = torch.cuda.Stream()
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            with window.iteration(), torch.cuda.stream(side):
                call()
            side.synchronize()

    return body


@contextmanager
def own_streams() -> Iterator[None]:
    """Add vectors on separate streams in three threads of this process."""
    stop = threading.Event()
    x, y = (torch.randn(1 << 26, device="cuda") for _ in range(2))

    def add() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            while not stop.is_set():
                for _ in range(10):
                    torch.add(x, y)
                torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _profiled(call: Callable[[], object]) -> Body:
    def body(window: gpuwatch.Window) -> None:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]):
            timed(call, 1.5)(window)

    return body


def _churning(call: Callable[[], object]) -> Body:
    def churn() -> None:
        call()
        torch.empty(1 << 28, dtype=torch.uint8, device="cuda").fill_(1)
        torch.cuda.empty_cache()

    return timed(churn)


def _compiled_in_between(call: Callable[[], object]) -> Body:
    """Compile a new kernel at iterations 700 and 1500."""

    def body(window: gpuwatch.Window) -> None:
        x = torch.randn(1 << 20, device="cuda")
        code = f"template <typename T> T lazy(T x) {{ return x * x + T({time.monotonic_ns() % 1000}); }}"
        for number in range(4000):
            with window.iteration():
                call()
                if number in (700, 1500):
                    torch.cuda.jiterator._create_jit_fn(code.replace("lazy", f"lazy{number}"))(x)
            if number % 50 == 0:
                torch.cuda.current_stream().synchronize()

    return body


def _cold(window: gpuwatch.Window) -> None:
    """Measure calls of a shape and type that no other hazard uses, from the window's first call on."""
    a, b = (torch.randn(3000, 3000, device="cuda", dtype=torch.float64) for _ in range(2))
    torch.cuda.synchronize()
    for _ in range(60):
        with window.iteration():
            torch.linalg.lu_factor(a[:512, :512])
            torch.mm(a[:512, :512], b[:512, :512])
    torch.cuda.current_stream().synchronize()


def _alternating() -> Body:
    short, long = gemm(4096), gemm(4608)

    def body(window: gpuwatch.Window) -> None:
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            for call in (short, long):
                for _ in range(40):
                    with window.iteration():
                        call()
                torch.cuda.current_stream().synchronize()

    return body


def _tampered(call: Callable[[], object]) -> Body:
    def body(window: gpuwatch.Window) -> None:
        honest = torch.cuda.Event.elapsed_time
        torch.cuda.Event.elapsed_time = lambda self, other: honest(self, other) / 2
        timed(call)(window)

    return body


@contextmanager
def restored_event() -> Iterator[None]:
    honest = torch.cuda.Event.elapsed_time
    try:
        yield
    finally:
        torch.cuda.Event.elapsed_time = honest


def _background(call: Callable[[], object]) -> Body:
    def body(window: gpuwatch.Window) -> None:
        stop = threading.Event()

        def spin() -> None:
            while not stop.is_set():
                sum(range(1000))

        threads = [threading.Thread(target=spin) for _ in range(2)]
        for thread in threads:
            thread.start()
        loop(call, 2.0)
        stop.set()
        for thread in threads:
            thread.join()

    return body


def _in_a_process(*what: str, **environment: str) -> Body:
    """Run the work in another process, which the window waits for."""

    def body(_: gpuwatch.Window) -> None:
        subprocess.run(
            [sys.executable, "-m", "tests.hardware.workloads", *what], env={**os.environ, **environment}, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    return body


def _crashing(call: Callable[[], object]) -> Body:
    def body(_: gpuwatch.Window) -> None:
        loop(call, 3.1)
        raise KeyError("the benchmark's own mistake")

    return body


def injections() -> Iterator[Injection]:
    """Yield every hazard, each made on demand to save memory."""
    gemm4k = gemm(4096)
    warm = lambda: loop(gemm4k, 3.0)  # noqa: E731 - used often below
    woken = lambda: loop(gemm4k, 0.3)  # noqa: E731 - for hazards independent of the clock
    yield Injection("from-idle-1s", ("regime-change",), steady(gemm4k, 1.0), lambda: time.sleep(3.5))
    yield Injection("from-idle-3s", ("regime-change",), steady(gemm4k, 3.2), lambda: time.sleep(3.5))
    yield Injection("short-50ms", ("power-limited",), steady(gemm4k, 0.05), warm, status="unproven")
    yield Injection("neighbour", ("contention-process",), steady(gemm4k), warm, lambda: beside("vector-adds"), "rejected")
    yield Injection("burst-neighbour", ("contention-process",), steady(gemm4k), warm, lambda: beside("vector-adds", "0.05"))
    yield Injection("own-streams", ("contention-self", "wrong-stream"), timed(gemm4k, 3.0), warm, own_streams)
    yield Injection("no-sync", ("missing-sync",), _no_sync(gemm(8192)), warm)
    yield Injection("side-stream", ("wrong-stream", "missing-sync"), _side_stream(gemm(8192)), warm)
    yield Injection("side-stream-iterations", ("wrong-stream",), _side_stream_iterations(gemm(8192)), warm)
    yield Injection("launch-blocking", ("profiler-attached",), _in_a_process("plain", CUDA_LAUNCH_BLOCKING="1"))
    small = torch.randn(1024, device="cuda")
    tiny = lambda: torch.add(small, small)  # noqa: E731
    yield Injection("tiny-eager", ("short-kernel", "host-bound"), timed(tiny), lambda: loop(tiny, 1.0))
    matrix, vector = (
        torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16),
        torch.randn(4096, device="cuda", dtype=torch.bfloat16),
    )
    gemv = lambda: torch.mv(matrix, vector)  # noqa: E731
    yield Injection("gemv-eager", ("host-bound", "short-kernel"), timed(gemv), lambda: loop(gemv, 1.0))
    yield Injection("churn", ("allocator-churn",), _churning(gemm4k), woken)
    yield Injection("compiled-in-between", ("outliers", "idle-stretch"), _compiled_in_between(gemm(2048)), woken)
    yield Injection("cold-calls", ("cold-start",), _cold)
    yield Injection("alternating", ("bimodal",), _alternating(), warm)
    yield Injection("tampered", ("timer-tampered",), _tampered(gemm4k), woken, restored_event)
    yield Injection("background-threads", ("background-thread",), _background(gemm4k), woken)
    yield Injection("crash", ("incomplete-body",), _crashing(gemm4k), warm, status="unproven")
    yield Injection(
        "flops-10x", ("impossible-time",), declaring(gemm4k, call_flops_count=20 * 4096**3, dtype="bfloat16"), woken
    )
    source = torch.randn(1 << 21, device="cuda")
    target = torch.empty_like(source)
    small_copy = lambda: target.copy_(source)  # noqa: E731
    yield Injection(
        "warm-8mb-copy", ("warm-cache-unintended", "impossible-time"),
        declaring(small_copy, working_set_bytes=2 * source.nbytes, call_bytes=2 * source.nbytes, cache="cold"), lambda: loop(small_copy, 1.0),
    )  # fmt: skip
    yield Injection("small-flush", ("flush-insufficient",), declaring(gemm4k, cache="cold", flush_bytes=8 << 20), woken)
    yield Injection(
        "wrong-result", ("semantic-mismatch",), declaring(gemm4k, reference_error_ratio=0.5, reference_limit_ratio=0.02), woken,
        status="rejected",
    )  # fmt: skip
    yield Injection("memoised", ("result-cached",), declaring(gemm4k, output_unchanged=True), woken)
    zeros = gemm(8192, zeros=True)
    zero = torch.zeros(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def looked_at(window: gpuwatch.Window) -> None:
        window.inputs(zero)
        timed(zeros, 3.2)(window)

    yield Injection("zeros", ("data-dependent-power",), looked_at, lambda: loop(zeros, 3.0))
    gemm16k = gemm(16384)
    for pause_ms in (20, 100, 500):
        yield Injection(
            f"sleeps-{pause_ms}ms", ("bursty-duty-cycle",), steady(gemm16k, 4.0, pause_s=pause_ms / 1e3),
            lambda pause_ms=pause_ms: loop(gemm16k, 1.5, pause_s=pause_ms / 1e3),  # type: ignore[misc]  # a default binds it
        )  # fmt: skip
    # Last, because CUPTI stays attached to the process afterwards.
    yield Injection("torch-profiler", ("profiler-attached",), _profiled(gemm(4096)))
