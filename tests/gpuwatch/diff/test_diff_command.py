"""Tests of `gpuwatch diff` on CUDA, PTX and cubin sides, and of the command's outputs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.diff.conftest import WriteSource
from tests.gpuwatch.diff.test_ptx_code import TEXT

# Most tests compare kernels of one file, because nvdisasm takes a quarter of a second for each new cubin.
KERNELS = """__global__ void f(float* x) { x[threadIdx.x] *= 2; }
__global__ void g(float* x) { x[threadIdx.x] *= 3; }
__global__ void h(float* x, int n) { for (int i = 0; i < n; i++) x[i] = x[i] * x[i] + 1; }
__global__ void less(float* x, float a) { x[0] = x[0] - a; }
__global__ void more(float* x, float a) { x[0] = a - x[0]; }
__global__ void scalars(const float* x) {}
__global__ void vectors(float4* x) {}
"""


def test_all_compares_every_common_kernel(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("a.cu", KERNELS)
    source("b.cu", KERNELS.replace("*= 3", "*= 4") + "__global__ void only_here() {}\n")
    found = gpuwatch("diff", "a.cu", "b.cu", "--all", "--json", "-").data["kernels"]
    names = [each["a"]["code"]["name"] for each in found]
    assert names == ["f", "g", "h", "less", "more", "scalars", "vectors"]
    assert [each["same_code"] for each in found] == [name != "g" for name in names]


def test_kernel_is_named_after_its_file(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("a.cu", KERNELS)
    found = gpuwatch("diff", "a.cu:f", "a.cu:g", "--json", "-").data["kernels"]
    assert [(each["a"]["code"]["name"], each["b"]["code"]["name"]) for each in found] == [("f", "g")]


def test_different_arguments_are_accepted_with_no_check(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("a.cu", KERNELS)
    assert gpuwatch("diff", "a.cu:f", "a.cu:h").code == 2
    assert gpuwatch("diff", "a.cu:f", "a.cu:h", "--no-check").code == 0


def test_swapped_operands_are_not_the_same_code(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    """The diff ignores register numbers, but code with different registers is not the same code."""
    source("a.cu", KERNELS)
    assert "no difference in PTX except in registers" in gpuwatch("diff", "a.cu:less", "a.cu:more", "--ptx").out
    assert not gpuwatch("diff", "a.cu:less", "a.cu:more", "--json", "-").data["kernels"][0]["same_code"]


def test_vectors_take_the_same_buffer(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("a.cu", KERNELS)
    assert gpuwatch("diff", "a.cu:scalars", "a.cu:vectors").code == 0


def test_cubin_decides_the_architecture(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("a.cu", "__global__ void k(float* x) { x[0] = 1; }\n")
    shutil.copy(Path(__file__).with_name("sm_80.cubin"), "a.cubin")
    found = gpuwatch("diff", "a.cubin", "a.cu", "--json", "-").data
    assert found["arch"] == "sm_80"
    assert [side["flags"] for side in found["sides"]] == [[], ["-arch=sm_80"]]


def test_ptx_without_assembler_is_compared_as_ptx(
    gpuwatch: Gpuwatch, source: WriteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = source("a.ptx", TEXT).parent
    source("b.ptx", TEXT.replace("fma.rn.f32", "mul.f32"))
    monkeypatch.setenv("PATH", str(folder))
    ended = gpuwatch("diff", "a.ptx", "b.ptx", "--fn", "first", "--ptx")
    assert ended.code == 0
    assert "PTX as given (no ptxas: no SASS)" in ended.out
    assert "registers" not in ended.out  # unknown until the PTX is assembled
    assert "-  fma.rn.f32 %f, %f, %f, %f" in ended.out
    assert "; a.cu:4" in ended.out


def test_json_file_equals_json_on_standard_output(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    folder = source("a.cu", KERNELS).parent
    shown = gpuwatch("diff", "a.cu:f", "a.cu:g", "--json", "found.json").out
    assert "registers per thread" in shown
    assert json.loads((folder / "found.json").read_text()) == gpuwatch("diff", "a.cu:f", "a.cu:g", "--json", "-").data


def test_equal_runs_share_one_cache_entry(gpuwatch: Gpuwatch, source: WriteSource, home: Path) -> None:
    """The cache holds one entry for the same source and flags, and a second entry for other flags."""
    source("a.cu", KERNELS)
    for flags, count in (([], 1), ([], 1), (["--", "-DX=1"], 2)):
        gpuwatch("--state", str(home / "state"), "diff", "a.cu:f", "a.cu:g", *flags)
        assert len(list((home / "state" / "diff-cache").iterdir())) == count


def test_escapes_in_a_file_name_are_not_printed(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("a\x1b[31m.cu", KERNELS)
    ended = gpuwatch("diff", "a\x1b[31m.cu:f", "a\x1b[31m.cu:g", "--sass")
    assert ended.code == 0
    assert "\x1b" not in ended.out
