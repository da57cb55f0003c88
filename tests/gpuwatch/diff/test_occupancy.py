"""Tests of theoretical occupancy against values of NVIDIA's occupancy calculator."""

from __future__ import annotations

import pytest

from gpuwatch.diff.launch_geometry import best_block, occupancy, sm_limits


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "warps", "limited_by"),
    [
        ("sm_90", 256, 32, 0, 64, "warps"),
        ("sm_90", 256, 33, 0, 48, "registers"),
        ("sm_90", 256, 64, 0, 32, "registers"),
        ("sm_90", 256, 255, 0, 8, "registers"),
        ("sm_90", 1024, 64, 0, 32, "registers"),
        ("sm_90", 1024, 65, 0, 0, "registers"),
        ("sm_90", 32, 16, 0, 32, "blocks"),
        ("sm_90", 256, 16, 48 * 1024, 32, "shared memory"),
        ("sm_90", 256, 16, 227 * 1024, 8, "shared memory"),
        ("sm_80", 128, 16, 20 * 1024, 28, "shared memory"),
        ("sm_86", 1024, 16, 0, 32, "warps"),
        ("sm_75", 64, 16, 0, 32, "warps"),
        ("sm_120", 64, 16, 0, 48, "warps"),
    ],
)
def test_occupancy_equals_nvidias_calculator(
    arch: str, threads: int, registers: int, shared: int, warps: int, limited_by: str
) -> None:
    limits = sm_limits(arch)
    assert limits is not None
    found = occupancy(limits, threads, registers, shared)
    assert (found.warps_count, found.limited_by) == (warps, limited_by)
    assert found.ratio == warps / limits.warps_count


def test_best_block_is_the_largest_with_best_occupancy() -> None:
    limits = sm_limits("sm_90a")
    assert limits is not None
    assert best_block(limits, 32, 0, 1024) == 1024
    assert best_block(limits, 40, 0, 1024) == 768


def test_unknown_architecture_has_no_limits() -> None:
    assert sm_limits("sm_999") is None
    assert sm_limits("gfx") is None
