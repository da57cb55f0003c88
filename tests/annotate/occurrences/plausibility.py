"""Windows with impossible numbers, skipped work, and unchecked or wrong results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from annotate.evidence import Evidence, Fact
from tests.annotate.builders import DEVICE, UUID, evidence
from tests.annotate.occurrences.timing import every

H200 = replace(
    DEVICE, compute_capability="9.0", architecture="hopper", cuda_cores_count=16896, memory_bus_bits_count=6144
)  # fmt: skip


def scenes() -> Iterator[Evidence]:
    yield evidence(declared={"output_unchanged": True})
    idle = {"utilization_ratio": 0.0}
    yield evidence(
        signals=idle, declared={"timer": "events", "cuda_uuids": UUID}, timings=every(1e-3, took_s=10e-6, calls_count=50)
    )
    gemm: dict[str, Fact] = {"dtype": "torch.bfloat16", "call_flops_count": 2 * 4096**3}
    yield evidence(device=H200, declared=gemm, timings=every(1e-3, took_s=18e-6, calls_count=50))
    yield evidence(device=H200, declared={"call_bytes": 2 << 30}, timings=every(1e-3, took_s=18e-6, calls_count=50))
    yield evidence(declared={"timer": "events", "timer_overhead_s": 2e-6}, timings=every(1e-3, took_s=0.9e-3))
    yield evidence(declared={"reference_error_ratio": 0.3, "reference_limit_ratio": 0.02})
    yield evidence(declared={"reference_error_ratio": float("inf")})
