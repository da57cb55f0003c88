"""What torch in this very process knows, if somebody else imported it and made a context: nothing here does either."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from gpuwatch import clock
from gpuwatch.wire import FactValue


def _cuda() -> Any | None:  # torch is not a dependency, so it has no type here
    """torch.cuda with a context made and no graph being captured, else None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not getattr(cuda, "is_initialized", lambda: False)():
        return None
    # Inside a capture any synchronisation is an error that would destroy the user's graph.
    return None if cuda.is_current_stream_capturing() else cuda


def synchronize() -> float | None:
    """Wait until this process's GPU work is done; how long that took in seconds, None if there was nothing to wait for."""
    cuda = _cuda()
    if cuda is None:
        return None
    begin_ns = clock.now_ns()
    for index in _used(cuda):
        cuda.synchronize(index)
    return (clock.now_ns() - begin_ns) / 1e9


def facts() -> dict[str, FactValue]:
    """What a window tells: torch's version, and the UUIDs of the GPUs it has memory on, comma-separated."""
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    if version is None:
        return {}
    told: dict[str, FactValue] = {"torch_version": str(version)}
    cuda = _cuda()
    if cuda is not None:
        with contextlib.suppress(AttributeError, RuntimeError):  # the UUID property is younger than torch 2.0
            told["cuda_uuids"] = ",".join(f"GPU-{cuda.get_device_properties(i).uuid}" for i in _used(cuda))
    return told


def _used(cuda: Any) -> list[int]:  # torch.cuda has no type here
    """The devices this process works on; with a single one the question is not asked, for it costs 0.1 ms."""
    count = cuda.device_count()
    return [0] if count == 1 else [i for i in range(count) if i == cuda.current_device() or cuda.memory_reserved(i)]
