"""Real torch work with or without a known hazard; as a program, a neighbour, a CPU hog, or a plain benchmark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch


def matrices(size: int, *, zeros: bool = False, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
    make = torch.zeros if zeros else torch.randn
    return make(size, size, device="cuda", dtype=dtype), make(size, size, device="cuda", dtype=dtype)


def loop(call: Callable[[], object], seconds: float, *, pause_s: float = 0.0, ahead: int = 50) -> int:
    """Call for ``seconds``, about ``ahead`` calls ahead of the GPU, or with a pause after each call; return the number of calls."""
    until = time.monotonic() + seconds
    count = 0
    waiting: list[torch.cuda.Event] = []
    while time.monotonic() < until:
        call()
        count += 1
        if pause_s:
            torch.cuda.synchronize()
            time.sleep(pause_s)
        elif count % 10 == 0:
            event = torch.cuda.Event()
            event.record()
            waiting.append(event)
            if len(waiting) > ahead // 10:
                waiting.pop(0).synchronize()
    torch.cuda.synchronize()
    return count


def gemm(size: int, **kind: object) -> Callable[[], object]:
    a, b = matrices(size, **kind)  # type: ignore[arg-type]  # gemm passes its keywords on
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def copy() -> Callable[[], object]:
    source = torch.randn(1 << 28, device="cuda")  # 1 GiB
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def vector_adds(burst_s: float | None = None) -> None:
    """Run as a neighbour: vector adds without end, or in bursts once a second."""
    x = torch.randn(1 << 26, device="cuda")
    y = torch.randn_like(x)
    tell_ready()
    while True:
        if burst_s is None:
            loop(lambda: torch.add(x, y), 1.0)
        else:
            loop(lambda: torch.add(x, y), burst_s)
            time.sleep(1.0 - burst_s)


def tell_ready() -> None:
    """Write one line at once, so that lines of many processes on one pipe stay whole."""
    os.write(1, f"ready {os.getpid()}\n".encode())


def hog() -> None:
    """Run numpy products, each on as many threads as CPUs."""
    a = np.random.default_rng(0).standard_normal((2000, 2000))
    tell_ready()
    while True:
        a @ a


def plain() -> None:
    call = gemm(4096)
    loop(call, 3.0)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    count = loop(call, 4.0)
    end.record()
    end.synchronize()
    print(f"{begin.elapsed_time(end) / count:.4f} ms")


@contextmanager
def beside(*what: str, count: int = 1) -> Iterator[None]:
    """Run other processes during the body, as orphans that are ready before the body starts."""
    # The shell in between ends at once, which makes the neighbour an orphan: a child would be part of the measured tree.
    command = f'for i in $(seq {count}); do setsid "$0" "$@" & done'
    launcher = subprocess.Popen(
        ["sh", "-c", command, sys.executable, "-m", "tests.hardware.workloads", *what], stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    pids = [int(launcher.stdout.readline().split()[1]) for _ in range(count)]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        launcher.stdout.close()
        launcher.wait()


@contextmanager
def hogging(count: int) -> Iterator[None]:
    """Run this number of busy processes as children of this process."""
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["vector-adds"]:
            vector_adds()
        case ["vector-adds", burst_s]:
            vector_adds(float(burst_s))
        case ["hog"]:
            hog()
        case ["plain"]:
            plain()
