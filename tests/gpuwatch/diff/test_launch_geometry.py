"""Tests of launch geometry: given, fixed by the kernel, or derived from code and sizes."""

from __future__ import annotations

import pytest

from gpuwatch.diff.code_line import CodeLine
from gpuwatch.diff.cubin import Threads
from gpuwatch.diff.kernel_code import KernelCode, Parameter
from gpuwatch.diff.launch_geometry import LIMITS, GivenLaunch, check_launch, derive_launches, is_size, read_launch
from gpuwatch.errors import UsageError

HOPPER = LIMITS[90]


def kernel(
    *, most: Threads | None = None, required: Threads | None = None, code: str = "S2R R, SR_TID.X", shared_bytes: int = 0
) -> KernelCode:
    parameters = (Parameter("x", "float const*", 8), Parameter("n", "int", 4), Parameter("scale", "float", 4))
    return KernelCode(
        "k",
        registers_count=32,
        shared_bytes=shared_bytes,
        max_threads=most,
        required_block=required,
        name="k",
        parameters=parameters,
        sass=(CodeLine("S2R", code),),
    )


def blocks(code: KernelCode, given: GivenLaunch | None = None) -> list[Threads]:
    return [each.block for each in derive_launches(code, given or GivenLaunch(), HOPPER, {})]


def test_given_launch_is_read_in_parts() -> None:
    assert read_launch("grid=64 block=32x8 smem=4096") == GivenLaunch((64, 1, 1), (32, 8, 1), 4096)
    assert read_launch("block=8,8,4") == GivenLaunch(block=(8, 8, 4))
    assert read_launch(None) == GivenLaunch()


@pytest.mark.parametrize(
    "text",
    [
        "grid", "grid=", "grid=0", "block=1x2x3x4", "block=8 block=8", "threads=4", "block=-1", "smem=4096x2", "block=" + "9" * 5000,
    ],
)  # fmt: skip
def test_malformed_launch_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--launch: expected"):
        read_launch(text)


def test_required_or_given_block_wins() -> None:
    assert blocks(kernel(required=(128, 1, 1))) == [(128, 1, 1)]
    assert blocks(kernel(most=(96, 1, 1))) == [(96, 1, 1)]
    assert blocks(kernel(most=(96, 1, 1)), GivenLaunch(block=(64, 1, 1))) == [(64, 1, 1)]
    assert blocks(kernel())[0] == (256, 1, 1)


def test_kernel_with_two_dimensions_gets_plane_blocks() -> None:
    assert blocks(kernel(code="S2R R, SR_TID.Y")) == [(32, 8, 1), (16, 16, 1), (32, 32, 1)]


def test_grid_covers_the_sizes() -> None:
    assert derive_launches(kernel(), GivenLaunch(), HOPPER, {})[0].grid is None
    assert derive_launches(kernel(), GivenLaunch(), HOPPER, {"n": 1000})[0].grid == (4, 1, 1)
    plane = kernel(code="S2R R, SR_TID.Y")
    assert derive_launches(plane, GivenLaunch(), HOPPER, {"rows": 100, "cols": 70})[0].grid == (3, 13, 1)


def test_size_names_are_recognised() -> None:
    assert all(map(is_size, ("n", "rows", "n_elements", "stride_row", "lda")))
    assert not any(map(is_size, ("scale", "causal", "seed")))


@pytest.mark.parametrize(
    ("code", "given", "words"),
    [
        (kernel(), GivenLaunch(block=(1024, 2, 1)), "expected at most 1024 threads a block for k, found 2048"),
        (kernel(most=(128, 1, 1)), GivenLaunch(block=(256, 1, 1)), "expected at most 128 threads"),
        (kernel(required=(128, 1, 1)), GivenLaunch(block=(64, 1, 1)), "expected blocks of 128x1x1 for k, found 64x1x1"),
        (kernel(shared_bytes=1024), GivenLaunch(shared_bytes=227 * 1024), "at most 232448 bytes of shared memory"),
    ],
)
def test_impossible_launch_is_refused(code: KernelCode, given: GivenLaunch, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_launch(code, given, HOPPER, "sm_90")
