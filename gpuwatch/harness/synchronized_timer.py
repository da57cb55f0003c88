"""A timer for harnesses that measure host time: it first waits for the GPU, so that a round includes all GPU work.

``pytest --benchmark-timer=gpuwatch.harness.synchronized_timer.synchronized``
"""

from __future__ import annotations

import sys
from typing import Any

from gpuwatch import clock
from gpuwatch.process import torch_state


def synchronized() -> float:
    """Wait for torch's work on the current GPU, else for CuPy's current stream; return CLOCK_MONOTONIC in seconds."""
    cuda: Any = torch_state.cuda_at_hand()  # torch and CuPy are not dependencies, so they have no types here
    if cuda is not None:
        cuda.synchronize()
    elif (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.get_current_stream().synchronize()
    return clock.now_ns() / 1e9
