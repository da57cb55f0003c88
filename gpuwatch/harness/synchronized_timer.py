"""A timer for harnesses that time the host: it waits for the GPU first, so that a round ends with its work.

``pytest --benchmark-timer=gpuwatch.harness.synchronized_timer.synchronized``
"""

from __future__ import annotations

import sys
from typing import Any

from gpuwatch import clock
from gpuwatch.process import torch_state


def synchronized() -> float:
    """Return the seconds of CLOCK_MONOTONIC once the current GPU's work is done; torch's and CuPy's contexts are known."""
    cuda: Any = torch_state.cuda_at_hand()  # neither has types here
    if cuda is not None:
        cuda.synchronize()
    elif (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.get_current_stream().synchronize()
    return clock.now_ns() / 1e9
