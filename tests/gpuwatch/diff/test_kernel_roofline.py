"""Tests of a kernel's roofline: shares of the peaks, bound and headroom, also with lower bounds of traffic."""

from __future__ import annotations

import pytest

from gpuwatch.diff.kernel_counters import Counters
from gpuwatch.diff.kernel_roofline import Peaks, against_roofline, read_peaks
from tests.gpuwatch.diff.timed_builders import H200, MIB, counters, times

PEAKS = read_peaks(H200, {"canary_record_copy_bytes_count": 4e12})
NONE = Counters("none", "none")


def test_peaks_are_measured_and_specified() -> None:
    assert PEAKS.says == "peaks: memory 4 TB/s measured by copies, 4.81 TB/s by specification; arithmetic by specification"
    assert read_peaks(H200, {}).memory_bytes == pytest.approx(4.814e12, rel=1e-3)


def test_buffers_minus_l2_give_a_lower_traffic_bound() -> None:
    found = against_roofline(times(200e-6), "a", NONE, PEAKS)
    assert found.traffic_bytes == 512 * MIB - 60 * MIB
    assert found.memory_ratio == pytest.approx(452 * MIB / 200e-6 / 4e12)
    assert (found.is_lower_bound, found.bound, found.headroom_ratio) == (True, "", None)  # the real traffic may be larger


def test_lower_bound_near_the_peak_is_a_bound() -> None:
    found = against_roofline(times(130e-6), "a", NONE, PEAKS)
    assert found.bound == "memory"
    assert found.headroom_ratio == pytest.approx(1 - found.memory_ratio if found.memory_ratio else 0)


def test_memory_activity_gives_the_memory_share() -> None:
    """GPM's share of the specified peak is converted to the measured peak."""
    found = against_roofline(
        times(1e-3), "a", counters("GPM", dram_activity_ratio=(0.7, 0.1), tensor_activity_ratio=(0.0, 0.0)), PEAKS
    )
    assert found.compute_ratio is None
    assert found.memory_ratio == pytest.approx(0.7 * 4.814 / 4, rel=1e-3)
    assert (found.bound, found.is_lower_bound, found.is_lower_traffic) == ("memory", False, True)
    other = against_roofline(times(1e-3), "b", counters("GPM", dram_activity_ratio=(0.7, 0.1)), PEAKS)
    assert (other.bound, other.headroom_ratio) == ("compute or latency", None)


def test_counters_of_ncu_give_intensity_and_every_bound() -> None:
    def bound(dram_bytes: float, flops: float) -> str:
        found = counters(dram_bytes=(dram_bytes, 0.0), fp32_flops_count=(flops, 0.0))
        return against_roofline(times(1e-3), "a", found, PEAKS).bound

    peak = 132 * 256 * 1545e6 * 1e-3  # operations in a millisecond at the true clock
    assert bound(3.8e9, 0.3 * peak) == "memory"
    assert bound(0.4e9, 0.9 * peak) == "compute"
    assert bound(0.4e9, 0.1 * peak) == "latency"


def test_intensity_is_operations_per_byte() -> None:
    found = against_roofline(times(1e-3), "a", counters(dram_bytes=(1e9, 1e9), fp32_flops_count=(5e9, 5e9)), PEAKS)
    assert found.intensity == 5.0
    assert found.flops_a_second == pytest.approx(5e12)
    assert found.peak_flops_a_second == pytest.approx(132 * 256 * 1545e6)
    assert found.to_dict()["headroom_ratio"] is not None


def test_unknown_gpu_has_no_shares() -> None:
    found = against_roofline(times(), "a", NONE, Peaks(H200, None, None))
    assert (found.memory_ratio, found.bound) == (None, "")


def test_caches_bound_a_kernel_that_leaves_dram_idle() -> None:
    """The bound is "caches" with DRAM at 12 % and memory throughput at 86 %, as for a naive transpose on an H200."""
    found = counters(dram_bytes=(564e6, 516e6), dram_activity_ratio=(0.118, 0.749), memory_throughput_ratio=(0.859, 0.749))
    a = against_roofline(times(987e-6), "a", found, PEAKS)
    b = against_roofline(times(150e-6), "b", found, PEAKS)
    assert (a.bound, round(a.headroom_ratio or 0, 2)) == ("caches", 0.14)
    assert (b.bound, b.cache_ratio) == ("memory", None)
