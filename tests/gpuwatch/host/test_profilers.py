"""Tests of the detection of profilers from outside a process: by mappings, environment and tracer."""

from __future__ import annotations

import _ctypes
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from gpuwatch.host import profilers
from gpuwatch.host.profilers import attached, text
from gpuwatch.libgpuwatch import LIBRARY
from tests.gpuwatch.libgpuwatch.conftest import needs_compiler
from tests.gpuwatch.live import running
from tests.waiting import PATIENCE_S

PID = 4242
Environ: TypeAlias = Mapping[str, str]
NONE: Environ = {}


def process(proc: Path, *, maps: str = "7f00-7f01 r-xp 0 00:00 0 [stack]\n", tracer: int = 0, environ: Environ = NONE) -> Path:
    folder = proc / str(PID)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "maps").write_text(maps)
    (folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in environ.items()))
    (folder / "status").write_text(f"Name:\tpython\nTracerPid:\t{tracer}\n")
    return proc


def mapped(*paths: str) -> str:
    return "".join(f"7f0000000000-7f0000001000 r-xp 00000000 08:01 12  {path}\n" for path in paths)


@contextlib.contextmanager
def living(code: str, **environ: str) -> Iterator[int]:
    """Start a Python process that runs this code and waits; yield the PID."""
    command = [sys.executable, "-c", f"{code}\nprint(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environ}) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child.pid
        finally:
            child.communicate(b"\n")


def test_plain_process_has_no_profiler(tmp_path: Path) -> None:
    """A plain process has no finding, and an ended process is unknown."""
    assert attached([PID], proc=process(tmp_path, environ={"PATH": "/bin", "CUDA_HOME": "/usr/local/cuda"})) == frozenset()
    assert attached([PID + 1], proc=tmp_path) is None
    assert attached([], proc=tmp_path) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/opt/nvidia/nsight-systems/2025.1/target-linux-x64/libToolsInjection64.so", {"library:libToolsInjection64.so"}),
        ("/opt/nsight-compute/target/libcuda-injection.so", {"library:libcuda-injection.so"}),
        ("/usr/local/cuda/compute-sanitizer/libsanitizer-collection.so", {"library:libsanitizer-collection.so"}),
        ("/v/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12", {"idle:libcupti.so.12"}),
        ("/tmp/a folder/libToolsInjection64.so (deleted)", {"library:libToolsInjection64.so"}),
        ("/usr/lib/libcuda.so.580.159.04", set()),
        ("/home/libToolsInjection/lib/libz.so", set()),
    ],
)  # fmt: skip
def test_injected_library_is_recognised_by_its_name(tmp_path: Path, path: str, expected: set[str]) -> None:
    """An injected library is recognised by its file name; a linked profiling library is reported as idle."""
    assert attached([PID], proc=process(tmp_path, maps=mapped("/usr/lib/libc.so.6", path))) == frozenset(expected)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CUDA_INJECTION64_PATH": "/x.so"}, {"variable:CUDA_INJECTION64_PATH"}),
        ({"CUDA_INJECTION64_PATH": ""}, set()),
        ({"NSYS_PROFILING_SESSION_ID": "7"}, {"variable:NSYS_PROFILING_SESSION_ID"}),
        ({"CUPTI_ENABLED": "1"}, {"variable:CUPTI_ENABLED"}),
        ({"CUPTI_ENABLED": "0"}, set()),
        ({"CUPTI_ROOT": "/usr/local/cuda/extras/CUPTI", "COMPUTE_SANITIZER_PATH": "/usr"}, set()),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, {"variable:CUDA_LAUNCH_BLOCKING"}),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, set()),
        ({"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}, set()),
        ({"LD_PRELOAD": "/usr/lib/libjemalloc.so.2:/t/libnvbit_tool.so"}, {"variable:LD_PRELOAD"}),
    ],
)
def test_variable_counts_if_it_enables_a_tool(tmp_path: Path, environ: Environ, expected: set[str]) -> None:
    assert attached([PID], proc=process(tmp_path, maps=mapped("/usr/lib/libc.so.6"), environ=environ)) == frozenset(expected)


def test_tracer_is_reported_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77/comm").write_text("cuda-gdb\n")
    assert attached([PID], proc=process(tmp_path, tracer=77)) == frozenset({"tracer:cuda-gdb"})


def test_commas_in_a_tracer_name_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77/comm").write_text("a,tracer:b\n")
    assert text(attached([PID], proc=process(tmp_path, tracer=77))) == "tracer:a_tracer_b"


def test_profiler_at_one_edge_is_kept() -> None:
    assert text(None, "tracer:gdb") == "tracer:gdb"
    assert text(frozenset(), None) == ""
    assert text(frozenset({"library:libx.so"}), "tracer:gdb") == "library:libx.so,tracer:gdb"
    assert text(None) is None


def test_real_process_shows_library_and_environment(tmp_path: Path) -> None:
    library = tmp_path / "libToolsInjection64.so"
    shutil.copy(_ctypes.__file__, library)
    with living(f"import ctypes; ctypes.CDLL({str(library)!r})", NVTX_INJECTION64_PATH=str(library)) as pid:
        assert attached([pid]) == frozenset({"library:libToolsInjection64.so", "variable:NVTX_INJECTION64_PATH"})


@needs_compiler
def test_own_library_of_an_ended_process_is_no_profiler(tmp_path: Path) -> None:
    """A process that ends between the reads of its environment and its files has no root folder; another root has another file."""
    process(tmp_path, environ={"NVTX_INJECTION64_PATH": str(LIBRARY)})
    assert attached([PID], proc=tmp_path) == frozenset()
    (tmp_path / str(PID) / "root").mkdir()
    assert attached([PID], proc=tmp_path) == frozenset({"variable:NVTX_INJECTION64_PATH"})


def test_only_the_first_processes_are_inspected(tmp_path: Path) -> None:
    process(tmp_path, tracer=77)
    assert attached([*range(1, profilers.LOOKED_AT_COUNT + 1), PID], proc=tmp_path) is None


def test_daemon_finds_an_undeclared_profiler(tmp_path: Path) -> None:
    program = """
import sys, threading, gpuwatch
from gpuwatch.config.settings import load
settings = load({"source": "simulated:steady-copy", "state": sys.argv[1], "socket": sys.argv[2]}, environment={"HOME": "/"})
with gpuwatch.window("profiled", settings=settings) as w:
    threading.Event().wait(1.2)
finding = w.verdict.finding("profiler-attached")
print(finding.answered.value, finding.severity, finding.says)
"""
    with running(tmp_path) as live:
        done = subprocess.run(
            [sys.executable, "-c", program, str(live.settings.state), str(live.settings.socket)],
            env={**os.environ, "CUDA_INJECTION64_PATH": "/opt/nsight/libToolsInjection64.so"},
            capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        )  # fmt: skip
    assert done.stdout.startswith("found flag the process runs under CUDA_INJECTION64_PATH"), done.stdout + done.stderr
