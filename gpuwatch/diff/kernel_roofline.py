"""Roofline of each kernel at its true clock, or at the maximum clock if unknown: bound, and distance to the GPU's peaks."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from annotate.amount_words import amount_text
from annotate.derived import roofline
from annotate.evidence import Device
from gpuwatch.diff.kernel_counters import CACHES, TRAFFIC, Counters
from gpuwatch.diff.read_counters import SideName
from gpuwatch.diff.timed_pair import SideTimes

_LATENCY_RATIO = 0.6  # below this share of all peaks, ncu's rule calls a kernel latency-bound
_OTHER_PATH = 1.1  # ncu's memory throughput is the busiest path's; below this multiple of DRAM's, DRAM is the busiest path
Bound: TypeAlias = Literal["memory", "compute", "caches", "latency", "compute or latency", ""]
_TYPES = ("fp32", "fp16", "fp64")


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak memory bandwidths in bytes per second: measured by the canary's copies on this GPU, and specified."""

    device: Device
    measured_bytes: float | None
    specified_bytes: float | None

    @property
    def memory_bytes(self) -> float | None:
        return self.measured_bytes or self.specified_bytes

    @property
    def says(self) -> str:
        rates = (("measured by copies", self.measured_bytes), ("by specification", self.specified_bytes))
        memory = [f"{amount_text(rate, 'B/s')} {how}" for how, rate in rates if rate]
        return f"peaks: memory {', '.join(memory) or 'not known'}; arithmetic by specification"


@dataclass(frozen=True, slots=True)
class KernelRoofline:
    """One kernel's shares of the peaks, and its bound, empty if unknown.

    A lower bound of traffic counts each byte once, minus the L2 cache's capacity.
    """

    bound: Bound
    memory_ratio: float | None
    is_lower_bound: bool  # True if ``memory_ratio`` is a lower bound
    is_lower_traffic: bool  # True if ``traffic_bytes`` is a lower bound
    compute_ratio: float | None
    cache_ratio: float | None  # share of the busiest path before DRAM: shared memory, L1 or L2
    traffic_bytes: float | None
    flops_count: float | None
    flops_a_second: float | None
    peak_flops_a_second: float | None

    @property
    def headroom_ratio(self) -> float | None:
        """Return the distance to the nearest peak; None if the bound is unknown or ambiguous."""
        if self.bound in ("", "compute or latency"):
            return None
        return max(0.0, 1.0 - max(self.memory_ratio or 0.0, self.compute_ratio or 0.0, self.cache_ratio or 0.0))

    @property
    def intensity(self) -> float | None:
        """Return the operations per byte of traffic; None if either count is unknown or zero."""
        return self.flops_count / self.traffic_bytes if self.flops_count and self.traffic_bytes else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"headroom_ratio": self.headroom_ratio, "intensity": self.intensity}


def read_peaks(device: Device, canary: Mapping[str, float]) -> Peaks:
    """Return the peaks of a GPU; ``canary`` is the GPU's record from ``canary_record.facts``."""
    return Peaks(device, canary.get("canary_record_copy_bytes_count"), roofline.peak_bytes_a_second(device))


def against_roofline(times: SideTimes, side: SideName, counters: Counters, peaks: Peaks) -> KernelRoofline:
    """Return a kernel's roofline.  ncu counts exact bytes; GPM gives only a share of the specified memory peak."""
    clock_mhz = times.true_clock_mhz or peaks.device.sm_clock_max_mhz or 0.0
    counted = counters.mean(side, TRAFFIC)
    buffers_bytes = times.input_bytes + times.output_bytes
    least = max(0.0, buffers_bytes - (roofline.most_l2_bytes(peaks.device) or 0))
    traffic = least if counted is None else counted
    shares = [traffic / times.median_s / peaks.memory_bytes] if peaks.memory_bytes and traffic else []
    activity = counters.mean(side, "dram_activity_ratio")
    if counted is None and activity is not None and peaks.specified_bytes and peaks.memory_bytes:
        shares.append(activity * peaks.specified_bytes / peaks.memory_bytes)
    memory = max(shares, default=None)
    is_lower_bound = counted is None and activity is None
    by_type = [
        (each, peak)
        for name in _TYPES
        if (each := counters.mean(side, f"{name}_flops_count")) is not None
        and (peak := roofline.peak_flops(peaks.device, name, clock_mhz)) is not None
    ]
    compute = [each / peak / times.median_s for each, peak in by_type]
    total = sum(each for each, _ in by_type) if by_type else None
    pipes = [counters.mean(side, name) for name in ("tensor_activity_ratio", "sm_throughput_ratio")]
    # Zeros are left out, because idle tensor cores do not show that other pipes are idle.
    known = [*([sum(compute)] if compute else []), *(each for each in pipes if each)]
    caches = counters.mean(side, CACHES)
    if caches is not None and caches < _OTHER_PATH * (activity or 0.0):
        caches = None  # DRAM is the busiest path
    used: dict[Bound, float] = {"memory": memory or 0.0, "compute": max(known, default=0.0), "caches": caches or 0.0}
    return KernelRoofline(
        bound=_bound(used, knows_memory=not is_lower_bound, knows_compute=counters.source == "ncu" and bool(known)),
        memory_ratio=memory,
        is_lower_bound=is_lower_bound,
        is_lower_traffic=counted is None,
        compute_ratio=max(known, default=None),
        cache_ratio=caches,
        traffic_bytes=traffic or None,
        flops_count=total,
        flops_a_second=total / times.median_s if total is not None else None,
        peak_flops_a_second=max(by_type)[1] if by_type else None,
    )


def _bound(used: Mapping[Bound, float], *, knows_memory: bool, knows_compute: bool) -> Bound:
    most = max(used, key=lambda name: used[name])
    if used[most] >= _LATENCY_RATIO:
        return most
    if not knows_memory:
        return ""
    return "latency" if knows_compute else "compute or latency"
