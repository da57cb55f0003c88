"""The compilation of the C library and of programs that use it, for tests and benchmarks."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from gpuwatch.libgpuwatch import FOLDER, LIBRARY

HERE = Path(__file__).parent
SOURCES = tuple(sorted(map(str, FOLDER.glob("*.c"))))
LINKED = ("-lpthread", "-ldl")


def has_compiler() -> bool:
    """Return True if a C compiler and the installed library exist."""
    return shutil.which("cc") is not None and LIBRARY.exists()


def nvtx_headers() -> Path | None:
    """Return the folder of NVTX's headers in the installed wheel; None without the wheel."""
    found = importlib.util.find_spec("nvidia")
    folders = [Path(each) / "cu13" / "include" for each in (found.submodule_search_locations or ())] if found else []
    return next((each for each in folders if (each / "nvtx3" / "nvToolsExt.h").exists()), None)


def compile_c(out: Path, *arguments: str) -> Path:
    """Compile C to a program or library, and return its path."""
    command = ["cc", "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-o", str(out), *arguments, f"-I{FOLDER}", *LINKED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def with_ranges(folder: Path) -> Path:
    """Compile the program with NVTX ranges, and return its path."""
    headers = nvtx_headers()
    assert headers is not None
    return compile_c(folder / "ranges", "-O2", f"-isystem{headers}", str(HERE / "ranges.c"))


def with_api(folder: Path) -> Path:
    """Compile the program with windows of the C API, and return its path."""
    linked = (f"-L{FOLDER}", "-lgpuwatch", f"-Wl,-rpath,{FOLDER}")
    return compile_c(folder / "api", "-O2", str(HERE / "api.c"), *linked)


def shared(folder: Path, name: str, source: str) -> Path:
    """Compile one file of this folder to a shared library, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    return compile_c(folder / name, "-shared", "-fPIC", "-Wl,-z,defs", f"-Wl,-soname,{name}", str(HERE / source))


def fuzzer(folder: Path, sanitizers: str, *defined: str) -> Path:
    """Compile the fuzzer with the library's sources under sanitizers, with 500 times shorter waits; return its path."""
    checked = (f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    wide = ("-Wno-stringop-truncation", "-Wno-format-truncation")
    return compile_c(folder / "fuzz", "-O1", *checked, *wide, "-DGW_MS=2000", *defined, str(HERE / "fuzz_ranges.c"), *SOURCES)
