"""The work of the examples: a product of two matrices, on the GPU if torch finds one, else on the CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable


def make_matmul(side: int = 4096) -> Callable[[], object]:
    """Return a function that multiplies two square matrices once; on a CPU the side is 1/32 as long."""
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            a, b = (torch.randn(side, side, device="cuda", dtype=torch.float16) for _ in "ab")
            return lambda: torch.matmul(a, b)
    import numpy as np

    random = np.random.default_rng(0)
    c, d = (random.standard_normal((side // 32, side // 32)) for _ in "cd")
    return lambda: c @ d
