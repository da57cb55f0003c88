"""Timed pairs, static comparisons and counters for tests."""

from __future__ import annotations

from collections.abc import Mapping

from annotate.evidence import Device
from gpuwatch.diff.code_line import CodeLine
from gpuwatch.diff.kernel_code import KernelCode
from gpuwatch.diff.kernel_counters import Counters, CounterSource
from gpuwatch.diff.launch_geometry import LaunchCandidate, Occupancy
from gpuwatch.diff.static_comparison import KernelSide, StaticComparison, compare_static
from gpuwatch.diff.timed_pair import SideTimes, TimedPair

H200 = Device(
    uuid="GPU-1", name="NVIDIA H200", compute_capability="9.0", cuda_cores_count=16896, memory_bus_bits_count=6016,
    mem_clock_max_mhz=3201, sm_clock_max_mhz=1980,
)  # fmt: skip
MIB = 1 << 20


def times(
    median_s: float = 1e-3, *, mhz: float | None = 1545.0, input_bytes: int = 256 * MIB, output_bytes: int = 256 * MIB
) -> SideTimes:
    return SideTimes(100, median_s, median_s, median_s, mhz, input_bytes, output_bytes)


def timed(decision: str = "FASTER", ratio: float | None = 1.142, *, own: float | None = None, reason: str = "") -> TimedPair:
    if ratio is None:
        return TimedPair(decision, reason, None, None, None, None, "valid", None, None)
    return TimedPair(decision, reason, ratio, ratio - 0.003, ratio + 0.004, own, "valid", times(), times(1e-3 / ratio))


def side(code: str, *, spills: int = 0, warps: int = 64, limited_by: str = "warps") -> KernelSide:
    """Return a kernel with these instructions: ``"2 LDG.32, 4 LDS.32@1"`` are two loads, and four in a loop."""
    lines = []
    for part in code.split(","):
        count, _, kind = part.strip().partition(" ")
        kind, _, depth = kind.partition("@")
        lines += [CodeLine(kind, kind, int(depth or 0), exact=kind)] * int(count)
    kernel = KernelCode(symbol="k", name="k", spill_store_bytes=spills, spill_load_bytes=spills, sass=tuple(lines))
    launch = LaunchCandidate((256, 1, 1), None, "a test")
    return KernelSide(kernel, (launch,), Occupancy(256, warps // 8, warps, warps / 64, limited_by))


def static(a: KernelSide | str = "1 LDG.32", b: KernelSide | str = "1 LDG.32") -> StaticComparison:
    return compare_static(*(each if isinstance(each, KernelSide) else side(each) for each in (a, b)))


def counters(
    source: CounterSource = "ncu", **values: tuple[float, float] | tuple[tuple[float, ...], tuple[float, ...]]
) -> Counters:
    """Return counters by name as ``(a, b)``; a single number means three equal repetitions."""
    repeated: Mapping[str, list[tuple[float, ...]]] = {
        name: [each if isinstance(each, tuple) else (each,) * 3 for each in both] for name, both in values.items()
    }
    return Counters(source, "as a test", *({name: both[index] for name, both in repeated.items()} for index in (0, 1)))
