"""Tests of the C library as built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuwatch.libgpuwatch import FOLDER, LIBRARY, is_ours
from tests.gpuwatch.libgpuwatch import built, fuzz_campaign, ptx_header
from tests.gpuwatch.libgpuwatch.conftest import CLEAN, needs_compiler

pytestmark = needs_compiler


def test_library_is_identified_by_path_and_content(folder: Path) -> None:
    """A copy elsewhere, another file at the path, and a relative path are not the library."""
    copy = folder / "libgpuwatch.so"
    copy.write_bytes(LIBRARY.read_bytes())
    other = folder / "changed.so"
    other.write_bytes(LIBRARY.read_bytes() + b"\0")
    assert is_ours(str(LIBRARY), LIBRARY)
    assert is_ours(str(LIBRARY), copy)  # as in a container with the package at the same path
    assert not is_ours(str(copy), copy)
    assert not is_ours(str(LIBRARY), other)
    assert not is_ours(str(LIBRARY), folder / "none")
    assert not is_ours(os.path.relpath(LIBRARY), LIBRARY)


def test_library_needs_only_glibc_2_17(folder: Path) -> None:
    """The library uses symbols up to glibc 2.17, except functions that glibc 2.32 to 2.34 gave a new version."""
    library = built.compile_c(folder / "own.so", "-shared", "-fPIC", "-Wl,-z,defs", *built.SOURCES)
    listed = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
    versions = re.findall(r"GLIBC_2\.(\d+)[\d.]*\)? +(\w+)$", listed, re.MULTILINE)
    newer = {name for minor, name in versions if int(minor) > 17}
    merged = {"pthread_create", "pthread_detach", "pthread_mutex_timedlock", "pthread_once", "pthread_sigmask"}
    assert len(versions) > 20
    assert newer <= merged | {"pthread_condattr_setclock", "dlopen", "dlsym", "stat", "fstat"}


@pytest.mark.parametrize(
    ("sanitizers", "count", "defined"), [("address,undefined", 2_500, fuzz_campaign.NO_FORKS), ("undefined", 500, "-DFORKS")]
)
def test_fuzzed_ranges_under_sanitizers(folder: Path, fake_driver: Path, sanitizers: str, count: int, defined: str) -> None:
    """Random ranges and calls from four threads, with an erratic daemon, cause no error under the sanitizers.

    The suite runs 3000 sequences; ``make fuzz-library`` runs many more.
    """
    ended = fuzz_campaign.run(built.fuzzer(folder, sanitizers, defined), count, 4, fake_driver)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout.split()[0]) > 0
    rows = [json.loads(line) for line in (folder / "report").read_text(errors="replace").splitlines()]
    assert [each for each in rows if "run" in each]


def test_c_stamp_kernel_equals_the_python_kernel() -> None:
    assert ptx_header.PATH.read_text() == ptx_header.text()


@pytest.mark.parametrize("tool", ["make", "cmake", "pkg-config"])
def test_c_examples_build(folder: Path, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    examples, out = Path(__file__).parents[3] / "examples" / "c", folder / tool
    commands = {
        "make": f"make -C {examples} OUT={out} GPUWATCH={FOLDER}",
        "cmake": f"cmake -B {out} -S {examples} -DCMAKE_PREFIX_PATH={FOLDER} && cmake --build {out} --target plain",
        "pkg-config": f"mkdir {out} && cc {examples}/plain.c $(pkg-config --cflags --libs gpuwatch) -o {out}/plain",
    }
    environment = {**CLEAN, "PKG_CONFIG_PATH": str(FOLDER)}
    made = subprocess.run(["sh", "-c", commands[tool]], env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    linked = subprocess.run(["ldd", out / "plain"], capture_output=True, text=True, check=True)
    assert str(LIBRARY) in linked.stdout
