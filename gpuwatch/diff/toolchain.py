"""CUDA's programs (from PATH, else NVIDIA's wheels, else Triton), the wheels' headers, and the bindings of NVRTC."""

import functools
import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuwatch.errors import UsageError

EXTRA = "pip install 'gpuwatch-validity[diff]'"
NVCC_EXTRA = "pip install 'gpuwatch-validity[nvcc]'"
TOOL_S = 300.0  # an endless template recursion must not block the terminal


def import_nvrtc() -> Any | None:  # cuda has no types
    """Return the bindings of NVRTC; None if the bindings or the library are missing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):  # RuntimeError: the wheel without the library
        return None
    return nvrtc


def find_tool(name: str) -> Path | None:
    """Return the path of one of CUDA's programs; None if the program is not installed."""
    found = shutil.which(name)
    if found:
        return Path(found)
    places = [path for folder in _package_folders("nvidia") for path in sorted(folder.glob(f"*/bin/{name}"))]
    places += [folder / "backends/nvidia/bin" / name for folder in _package_folders("triton")]
    return next((place for place in places if place.is_file()), None)


def is_from_wheel(tool: Path) -> bool:
    return any(tool.is_relative_to(folder) for folder in _package_folders("nvidia"))


def include_folders() -> list[Path]:
    """Return the folders of CUDA's headers in the wheels."""
    found = [path for folder in _package_folders("nvidia") for path in sorted(folder.glob("*/include"))]
    return [each for path in found for each in (path, path / "cccl") if each.is_dir()]


@functools.cache
def version_of(tool: Path) -> str:
    """Return the last line of a tool's --version, which names the build; "unknown" without output."""
    lines = run_tool([str(tool), "--version"]).stdout.strip().splitlines()
    return lines[-1].strip() if lines else "unknown"


def release_of(tool: Path) -> str:
    """Return a tool's release, such as 13.0; the build if no release is found."""
    build = version_of(tool)
    return build.partition("cuda_")[2].partition(".r")[0] or build


def run_tool(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end.

    Raises UsageError: when the tool takes longer than ``TOOL_S`` or cannot be started.
    """
    try:
        return subprocess.run(list(command), capture_output=True, check=False, text=True, errors="replace", timeout=TOOL_S)
    except subprocess.TimeoutExpired as error:
        name = Path(command[0]).name
        raise UsageError(f"{name}: expected a result within {TOOL_S:.0f} s, found none; use a smaller file") from error
    except OSError as error:
        raise UsageError(f"{command[0]}: expected a program that starts, found: {error.strerror}; reinstall it") from error


def _package_folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
