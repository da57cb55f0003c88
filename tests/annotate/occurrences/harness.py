"""Windows with hazards of the harness: profilers, allocations, cheap inputs, background threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from annotate.evidence import Evidence, Fact, Host, Timings
from tests.annotate.builders import BEGIN_NS, capped_ns, evidence

RANDOM: dict[str, Fact] = {
    "input_zero_ratio": 0.0, "input_unique_ratio": 0.038, "input_dtype": "bfloat16", "input_bytes": 67_108_864,
}  # fmt: skip
ZEROS: dict[str, Fact] = {**RANDOM, "input_zero_ratio": 1.0, "input_unique_ratio": 1.5e-5}
UNMOVED: dict[str, Fact] = {"alloc_count": 0, "alloc_retry_count": 0, "reserved_change_bytes": 0}


def calls(took_s: float, count: int = 1000) -> Timings:
    at_ns = BEGIN_NS + (np.arange(count) * took_s * 1e9).astype(np.int64)
    return Timings(at_ns, np.full(count, took_s))


def profiled(profilers: str | None, **signals: object) -> Evidence:
    return evidence(host=Host(profilers=profilers, span_s=6.0), signals=signals)


def beside(threads_count: int, processes_count: int, cpu_s: float | None) -> Evidence:
    return evidence(
        host=Host(span_s=6.0, threads_born_count=threads_count, processes_born_count=processes_count, born_cpu_s=cpu_s)
    )


def churning() -> Evidence:
    """Return evidence with another amount of memory in use at each refresh."""
    return evidence(signals={"memory_used_bytes": lambda t: 3_000_000_000 + int(t * 10) % 2 * 512_000_000})


def scenes() -> Iterator[Evidence]:
    yield profiled("idle:libcupti.so.12,library:libToolsInjection64.so,variable:NSYS_PROFILING_SESSION_ID")
    yield profiled("tracer:gdb,variable:CUDA_LAUNCH_BLOCKING,variable:A_B,variable:C_D,variable:E_F", utilization_ratio=0.2)
    yield evidence(declared={"launch_blocking": True, "profiler_used": True}, timings=calls(20e-6))
    for name, count in (("alloc_count", 3), ("alloc_count", 5000), ("alloc_retry_count", 2)):
        yield evidence(declared={**UNMOVED, name: count})
    yield churning()
    yield evidence(declared=ZEROS)
    yield evidence(declared={**RANDOM, "input_unique_ratio": 1e-4, "call_flops_count": 1e12})
    yield evidence(signals={"power_w": 415.0, "power_cap_ns": capped_ns(), "power_violation_ns": capped_ns()})
    yield beside(1, 0, 3.0)
    yield beside(12, 2, 0.01)
    yield beside(0, 1, None)
