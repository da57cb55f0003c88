"""Tests of invalid input that needs no GPU: one error line, exit code 2, and no file left."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from gpuwatch.cli.exit_codes import Exit
from gpuwatch.diff import sass
from tests.gpuwatch.cli.conftest import Ended, Gpuwatch
from tests.gpuwatch.diff.conftest import WriteSource

OK = "__global__ void k(float* x) { x[0] = 1; }\n"
TWO = "__global__ void f(float* x) { x[0] = 1; }\n__global__ void g(float* x) { x[0] = 2; }\n"
BIG = "__global__ void k(float* x) { __shared__ float s[20000]; s[threadIdx.x] = *x; __syncthreads(); x[1] = s[5]; }\n"
SIZED = "__global__ void k(float* x, int n) { x[n] = 1; }\n"
TEMPLATE = "template <int N> __global__ void t(float* x) { x[N] = 1; }\n"


def refused(ended: Ended) -> str:
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    (line,) = ended.err.splitlines()
    assert line.startswith("gpuwatch: ")
    return line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("// nothing\n", "a.cu: expected a kernel, found none"),
        ("", "a.cu: expected a kernel, found none"),
        (TEMPLATE, "a template is compiled for the types that --fn names"),
        ("__global__ void k(float* x) {\n  x[0] = y;\n}\n", 'a.cu:2: identifier "y" is undefined'),
        ('#include "no.h"\n' + OK, "a.cu:1: header 'no.h' is not in any include folder"),
        (BIG, "a.cu: expected at most 49152 bytes of static shared memory in k, found 80000"),
        ("__global__ void k(float* x, double n) { x[0] = n; }\n", "found k(float* x, double n) and k(float* x)"),
        ("__global__ void k(double* x) { x[0] = 1; }\n", "expected kernels that take the same arguments"),
    ],
    ids=["no kernel", "empty", "template", "syntax", "header", "shared memory", "arguments", "types"],
)
def test_source_error_is_one_line(gpuwatch: Gpuwatch, source: WriteSource, text: str, words: str) -> None:
    source("a.cu", text)
    source("b.cu", OK)
    assert words in refused(gpuwatch("diff", "a.cu", "b.cu"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no.cu", "ok.cu"], "no.cu: expected a file, found none"),
        ([".", "ok.cu"], "found a folder; name a file in it"),
        (["ok.txt", "ok.cu"], "'ok.txt': expected a file FILE.cu"),
        (["folder.cu", "ok.cu"], "found a folder"),
        (["-k.cu", "ok.cu"], "write it as ./-k.cu"),
        (["ok.cu:", "ok.cu"], "'ok.cu:': expected a file"),
        (["ok.cu", "ok.cu", "ok.cu"], "expected one side or two, found 3"),
        (["ok.cu", "ok.cu", "--at", "HEAD"], "--at: expected one file"),
        (["ok.cu"], "expected ok.cu in a git repository, found none"),
        (["no@HEAD:ok.cu", "ok.cu"], "or an address such as https://HOST/REPOSITORY before the @, found 'no'"),
        (["ok.cu", "ok.cu", "--fn", "no"], "expected a kernel 'no', found none; it has: k"),
        (["ok.cu", "ok.cu", "--fn", "=k"], "--fn: expected NAME or NAME=NAME2"),
        (["ok.cu", "ok.cu", "--fn", "k", "--all"], "--all: expected no --fn with it"),
        (["ok.cu", "ok.cu", "--fn", "k<3>"], "expected --fn to name a template instance of the file"),
        (["two.cu", "two.cu"], "found 2 that both sides have: f, g; use --fn NAME or --all"),
        (["two.cu", "ok.cu"], "expected a kernel of the same name, found none; choose with --fn NAME=NAME2"),
        (["two.cu", "ok.cu", "--all"], "--all: expected kernels of the same name, found none"),
        (["ok.cu", "ok.cu", "--arch", "hopper"], "--arch: expected an architecture such as sm_90"),
        (["ok.cu", "ok.cu", "--arch", "sm_12"], "architecture"),
        (["ok.cu", "ok.cu", "--launch", "smem=999999"], "expected at most 232448 bytes of shared memory"),
        (["ok.cu", "ok.cu", "--shape", "n=many"], "--shape: expected a size such as n=1M"),
        (["ok.cu", "ok.cu", "--shape", "n=1k,many"], "--shape: expected a size such as n=1M"),
        (["ok.cu", "ok.cu", "--shape", "m=5"], "--shape: expected a whole number that a kernel takes (none), found 'm'"),
        (["sized.cu", "sized.cu", "--shape", "m=5"], "--shape: expected a whole number that a kernel takes (n), found 'm'"),
        (
            ["sized.cu", "sized.cu", "--shape", "n=2G"],
            "n: expected at most 2147483647, the largest value of its type, found 2147483648",
        ),
        (
            ["ok.cu", "ok.cu", "--shape", "x=" + "9" * 30],
            "--shape: expected a size such as n=1M, from 1 to 1099511627776, found",
        ),
        (["ok.cu", "ok.cu", "--shape", "x=1025g"], "--shape: expected a size such as n=1M, from 1 to 1099511627776, found"),
        (
            ["ok.cu", "ok.cu", "--launch", "grid=9999999999"],
            "--launch: expected a grid of at most 2147483647x65535x65535 blocks",
        ),
        (["--", "ok.cu", "ok.cu"], "diff: expected A [B] before --, found only compiler flags after it"),
        (["ok.cu", "ok.cu", "--shape", "n=1", "--shape", "n=2"], "--shape: expected each name once"),
        (["ok.cu", "ok.cu", "--fill", "ones"], "--fill: expected randn, zeros, iota or FILE.npy, found 'ones'"),
        (["ok.cu", "ok.cu", "--fill", "no.npy"], "--fill: expected a .npy file of numbers, found no.npy"),
        (["ok.cu", "ok.cu", "--tolerance", "much"], "--tolerance"),
        (["ok.cu", "ok.cu", "--flags-b", "'"], "--flags-b: expected words in shell syntax"),
        (["ok.cu", "ok.cu", "--json", "ok.cu"], "--json: expected a file whose name ends in .json"),
        (["ok.cu", "ok.cu", "--", "-o", "x"], "found one that sets the output; remove it"),
        (["noise.cubin", "ok.cu"], "noise.cubin: expected a cubin (64-bit CUDA ELF), found another format"),
        (["empty.cubin", "ok.cu"], "empty.cubin: expected a cubin (64-bit CUDA ELF), found an empty file"),
        (["ok.cu", "f.py"], "expected FILE.py:KERNEL, or its name with --fn"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_invalid_diff_argument_is_refused(gpuwatch: Gpuwatch, source: WriteSource, arguments: list[str], words: str) -> None:
    for name, text in (
        ("ok.cu", OK),
        ("two.cu", TWO),
        ("f.py", ""),
        ("noise.cubin", "noise"),
        ("empty.cubin", ""),
        ("sized.cu", SIZED),
    ):
        folder = source(name, text).parent
    (folder / "folder.cu").mkdir()
    before = sorted(folder.iterdir())
    assert words in refused(gpuwatch("diff", *arguments))
    assert sorted(folder.iterdir()) == before
    assert not list(folder.parent.glob("gpuwatch-*"))


def test_cubin_of_another_architecture_is_refused(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("ok.cu", OK)
    shutil.copy(Path(__file__).with_name("sm_80.cubin"), "ok.cubin")
    line = refused(gpuwatch("diff", "ok.cubin", "ok.cu", "--arch", "sm_90"))
    assert "expected a cubin for sm_90, found one for sm_80; compile it again, or use --arch sm_80" in line


def test_file_name_with_a_dash_needs_dot_slash(gpuwatch: Gpuwatch, source: WriteSource) -> None:
    source("-k.cu", OK)
    assert gpuwatch("diff", "./-k.cu", "./-k.cu").code == 0


def test_missing_extra_names_the_pip_command(gpuwatch: Gpuwatch, source: WriteSource, monkeypatch: pytest.MonkeyPatch) -> None:
    sass._run_disassembler.cache_clear()  # another test may have disassembled the same cubin
    folder = source("ok.cu", OK).parent
    monkeypatch.setenv("PATH", str(folder))
    for name in ("nvidia", "triton", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "run: pip install 'gpuwatch-validity[diff]'" in refused(gpuwatch("diff", "ok.cu", "ok.cu"))
    shutil.copy(Path(__file__).with_name("sm_80.cubin"), "ok.cubin")
    line = refused(gpuwatch("diff", "ok.cubin", "ok.cubin"))
    assert "needs nvdisasm, found none; run: pip install 'gpuwatch-validity[diff]'" in line


def test_host_code_without_nvcc_names_the_pip_command(
    gpuwatch: Gpuwatch, source: WriteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = source("ok.cu", OK).parent
    source("host.cu", OK + "int main() { k<<<1, 1>>>(nullptr); }\n")
    monkeypatch.setenv("PATH", str(folder))
    assert "pip install 'gpuwatch-validity[nvcc]'" in refused(gpuwatch("diff", "host.cu", "ok.cu"))
