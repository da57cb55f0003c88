"""The state of torch in this process, read without importing torch or creating a context."""

import contextlib
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from gpuwatch import clock
from gpuwatch.process import software, tampering
from gpuwatch.wire.messages import FactValue


def cuda_with_context() -> Any | None:  # torch is not a dependency, so it has no type here
    """Return torch.cuda, or its stand-in, if this process has a CUDA context; else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and getattr(cuda, "is_initialized", lambda: False)() else _stand_in.get(os.getpid())


def stand_in(cuda: Any) -> None:
    """Use an object with torch.cuda's functions instead of torch.cuda, for a process whose CUDA context is not torch's."""
    _stand_in[os.getpid()] = cuda


_stand_in: dict[int, Any] = {}  # by PID, so that a fork does not inherit the entry


def capturing() -> bool:
    """Return True if a graph is being captured: any synchronisation would fail and destroy the graph."""
    cuda = cuda_with_context()
    return cuda is not None and bool(cuda.is_current_stream_capturing())


def cuda_at_hand() -> Any | None:  # torch is not a dependency, so it has no type here
    """Return torch.cuda if every call is safe (a context, and no graph being captured); else None."""
    return None if capturing() else cuda_with_context()


def synchronize() -> float | None:
    """Wait until this process's GPU work is done; return the seconds, or None without a context or during a capture."""
    cuda = cuda_at_hand()
    if cuda is None:
        return None
    begin_ns = clock.now_ns()
    for index in _used(cuda):
        cuda.synchronize(index)
    return (clock.now_ns() - begin_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Allocations:
    """Counters of torch's caching allocator since the process began, over all its GPUs: meaningful as differences."""

    alloc_count: int
    retry_count: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one edge of a window: facts to declare, and the allocator's counters."""

    facts: dict[str, FactValue] = field(default_factory=dict)
    allocations: Allocations | None = None


def snapshot() -> Snapshot:
    """Read the software, profilers, replaced timers, this process's GPUs, and the allocator's counters."""
    declared = software.facts() | {
        "launch_blocking": os.environ.get("CUDA_LAUNCH_BLOCKING", "0").strip() not in ("", "0"),
        "profiler_used": notice_profiler(),
        "tampered": ",".join(tampering.replaced()),
    }
    cuda = cuda_at_hand()
    if cuda is None:
        return Snapshot(declared)
    return Snapshot(declared | software.cudnn_version() | _described(cuda), _allocations(cuda))


def facts_since(before: Snapshot) -> dict[str, FactValue]:
    """Return the facts that changed since a window's start, and the allocator's work in between."""
    now = snapshot()
    declared = {name: value for name, value in now.facts.items() if before.facts.get(name) != value}
    # A state at the start stays declared, even if the program undid the state before the end.
    for name in ("launch_blocking", "profiler_used"):
        if before.facts.get(name):
            declared.pop(name, None)
    names = {name for edge in (before.facts, now.facts) for name in str(edge.get("tampered") or "").split(",") if name}
    if names:
        declared["tampered"] = ",".join(sorted(names))
    return declared | _grown(before.allocations, now.allocations)


def notice_profiler() -> bool:
    """Return True if a profiler or tracer runs, or torch's profiler ran before, because CUPTI then stays attached.

    A profiler may start and stop between a window's edges, so windows also call this function between the edges.
    """
    autograd = getattr(sys.modules.get("torch"), "autograd", None)
    asked = getattr(autograd, "_profiler_enabled", None)
    with contextlib.suppress(RuntimeError, TypeError):
        if asked is not None and asked():
            _seen_profiled.add(os.getpid())
    # torch sets this variable when its profiler meets CUDA graphs, and leaves it set.
    lasting = os.getpid() in _seen_profiled or "DISABLE_CUPTI_LAZY_REINIT" in os.environ
    return lasting or sys.getprofile() is not None or sys.gettrace() is not None


_seen_profiled: set[int] = set()  # PIDs, so that a fork does not inherit the entry


def _described(cuda: Any) -> dict[str, FactValue]:  # torch.cuda has no type here
    """Return the GPUs in CUDA's terms; SMs and cache size only if all GPUs are alike."""
    declared: dict[str, FactValue] = {}
    # torch 2.0 lacks the UUID, and torch 2.1 the size of the cache.
    with contextlib.suppress(AttributeError, RuntimeError):
        found = [cuda.get_device_properties(index) for index in _used(cuda)]
        for name, attribute in (("sm_count", "multi_processor_count"), ("l2_bytes", "L2_cache_size")):
            amounts = {getattr(properties, attribute, None) for properties in found}
            if len(amounts) == 1 and isinstance(amount := amounts.pop(), int):
                declared[name] = amount
        declared["cuda_uuids"] = ",".join(f"GPU-{properties.uuid}" for properties in found)
    return declared


def _allocations(cuda: Any) -> Allocations | None:  # torch.cuda has no type here
    """Return the allocator's counters, from the nested form because the flat form is slow; None without these counters."""
    with contextlib.suppress(AttributeError, RuntimeError, KeyError, TypeError):
        stats = [cuda.memory_stats_as_nested_dict(index) for index in _used(cuda)]
        # torch 2.2 lacks the count of calls to the driver; a segment was one such call.
        counts = [
            each["num_device_alloc"] if "num_device_alloc" in each else each["segment"]["all"]["allocated"] for each in stats
        ]
        return Allocations(
            alloc_count=sum(counts),
            retry_count=sum(each["num_alloc_retries"] for each in stats),
            reserved_bytes=sum(each["reserved_bytes"]["all"]["current"] for each in stats),
        )
    return None


def _grown(before: Allocations | None, now: Allocations | None) -> dict[str, FactValue]:
    # The first allocations of a context created inside the window count too.
    if now is None:
        return {}
    before = before or Allocations(0, 0, 0)
    return {
        "alloc_count": max(0, now.alloc_count - before.alloc_count),
        "alloc_retry_count": max(0, now.retry_count - before.retry_count),
        "reserved_change_bytes": now.reserved_bytes - before.reserved_bytes,
    }


def _used(cuda: Any) -> list[int]:  # torch.cuda has no type here
    """Return the devices that this process uses; a single device is not queried, to save time."""
    count = cuda.device_count()
    return [0] if count == 1 else [i for i in range(count) if i == cuda.current_device() or cuda.memory_reserved(i)]
