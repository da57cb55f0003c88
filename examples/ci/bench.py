"""A benchmark for CI: one window around matrix products or, without a GPU, around sleeps for a simulated GPU."""

import os
import time
from collections.abc import Callable

import gpuwatch

SECONDS = float(os.environ.get("SECONDS_COUNT", "4"))
EXTRA_ROWS = int(os.environ.get("EXTRA_ROWS", "0"))  # rows of extra work in each step


def make_step() -> Callable[[], object]:
    try:
        import torch
    except ImportError:
        return lambda: time.sleep(0.02)
    if not torch.cuda.is_available():
        return lambda: time.sleep(0.02)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    more = a[:EXTRA_ROWS]

    def step() -> object:
        product = a @ a
        return more @ product if EXTRA_ROWS else product

    return step


step = make_step()
for _ in range(3):
    step()
with gpuwatch.window("step") as window:
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s:
        with window.iteration():
            step()
