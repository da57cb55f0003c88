"""The build of the mock driver with gcc: the whole library, and older ones without some functions."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.fake_nvml.layout import FUNCTIONS, SOURCE, header
from tests.gpuwatch.programs import program

LIBRARY = "libnvidia-ml.so.1"


def build(folder: Path) -> Path:
    """Compile the library into this folder, and return the folder for LD_LIBRARY_PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scene.h").write_text(header())
    _gcc(folder, "-c", "-fPIC", "-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{folder}", *map(str, _sources()))
    _link(folder, folder, ())
    return folder


def older(built: Path, folder: Path, missing: Iterable[str]) -> Path:
    """Link the same library without these functions, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _link(built, folder, missing)
    return folder


def _link(objects: Path, folder: Path, missing: Iterable[str]) -> None:
    shown = sorted(FUNCTIONS.keys() - set(missing))
    script = folder / "exports"
    script.write_text("{ global: " + " ".join(f"{name};" for name in shown) + " local: *; };\n")
    parts = [str(objects / f"{source.stem}.o") for source in _sources()]
    named = (f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={script}")
    _gcc(folder, "-shared", "-o", LIBRARY, *named, *parts, "-lpthread", "-lm")


def _sources() -> list[Path]:
    return sorted(SOURCE.glob("*.c"))


def _gcc(folder: Path, *arguments: str) -> None:
    done = subprocess.run([program("gcc"), *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
