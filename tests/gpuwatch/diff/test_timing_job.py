"""Tests of the timing process's job: launches that follow from the code, and invalid arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.diff.code_line import CodeLine
from gpuwatch.diff.compiled import Compiled
from gpuwatch.diff.cubin import CubinKernel
from gpuwatch.diff.kernel_arguments import NotTimedError
from gpuwatch.diff.kernel_code import KernelCode, Parameter, SideCode
from gpuwatch.diff.launch_geometry import LIMITS, GivenLaunch, derive_launches
from gpuwatch.diff.sides import Side
from gpuwatch.diff.static_comparison import KernelSide
from gpuwatch.diff.timing_job import CallJob, KernelJob, TimingJob, TimingTerms, make_job
from gpuwatch.errors import UsageError

PARAMETERS = (Parameter("x", "float const*", 8), Parameter("y", "float*", 8), Parameter("n", "int", 4))


def code(*ptx: str, parameters: tuple[Parameter, ...] = PARAMETERS) -> KernelCode:
    return KernelCode(
        "k", registers_count=16, name="k", parameters=parameters, ptx=tuple(CodeLine("mov", each) for each in ptx)
    )


def job(
    a: KernelCode,
    b: KernelCode | None = None,
    *,
    launch: str = "",
    cubin: bytes = b"cubin",
    sizes: dict[str, int] | None = None,
) -> TimingJob:
    """Return the job for kernel A against kernel B, or against a Python function."""
    given = GivenLaunch(block=(64, 1, 1)) if launch else GivenLaunch()
    kernels = [KernelSide(each, tuple(derive_launches(each, given, LIMITS[90], {})), None) if each else None for each in (a, b)]
    side = SideCode("k.cu", Compiled(compiler="", cubin=cubin), (CubinKernel("k"),))
    named = Side("k.cu", Path("k.cu"), "k")
    return make_job((named, named), (kernels[0], kernels[1]), (side, side), given, TimingTerms(sizes=sizes or {}))


def kernel(found: TimingJob) -> KernelJob:
    assert isinstance(found.a, KernelJob)
    return found.a


def test_kernel_that_reads_blockdim_gets_usual_blocks() -> None:
    found = kernel(job(code("mov.u32 %r1, %ntid.x"), code()))
    assert (found.fixed_blocks, found.blocks[0], found.strides) == ((), (256, 1, 1), False)


def test_kernel_without_blockdim_is_tried_from_one_warp() -> None:
    assert kernel(job(code("mov.u32 %r1, %tid.x"), code())).fixed_blocks[0] == (32, 1, 1)
    assert kernel(job(code("mov.u32 %r1, %tid.x"), code(), launch="block=64")).fixed_blocks == ()
    assert kernel(job(replace(code("mov.u32 %r1, %tid.x"), max_threads=(96, 1, 1)), code())).fixed_blocks == ()
    assert kernel(job(code(), code())).fixed_blocks == ()  # unknown without PTX


def test_grid_stride_loop_is_found_in_the_code() -> None:
    assert kernel(job(code("mov.u32 %r1, %nctaid.x"), code())).strides
    assert kernel(job(replace(code(), sass=(CodeLine("LDC", "LDC R, c[0x0][0xc]"),)), code())).strides


def test_plane_follows_from_the_blocks() -> None:
    assert job(code("mov.u32 %r1, %tid.y"), code()).is_plane
    assert not job(code(), code()).is_plane


def test_python_function_takes_the_kernels_arguments() -> None:
    found = job(code())
    assert isinstance(found.b, CallJob)
    assert [slot.name for slot in found.slots] == ["x", "y", "n"]


def test_unknown_size_is_refused() -> None:
    with pytest.raises(UsageError, match="--shape: expected a parameter of the kernels, found 'm'; they have: x, y, n"):
        job(code(), code(), sizes={"m": 4})


def test_side_without_machine_code_is_refused() -> None:
    with pytest.raises(NotTimedError, match=r"k\.cu: expected a cubin to run, found PTX alone"):
        job(code(), code(), cubin=b"")


def test_struct_argument_prevents_timing() -> None:
    with pytest.raises(NotTimedError, match="p: expected a number or a pointer to numbers, found Params"):
        job(code(parameters=(Parameter("p", "Params", 16),)), code())
