"""Programs and a mock driver compiled once for the tests of a module, and the condition of all of these tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.gpuwatch.libgpuwatch import built

needs_compiler = pytest.mark.skipif(
    "CI" not in os.environ and (not built.has_compiler() or built.nvtx_headers() is None),
    reason="needs a C compiler, the library built at installation and nvidia-nvtx",
)
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWATCH_", "NVTX_"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def ranges(folder: Path) -> Path:
    return built.with_ranges(folder)


@pytest.fixture(scope="module")
def api(folder: Path) -> Path:
    return built.with_api(folder)


@pytest.fixture(scope="module")
def fake_driver(folder: Path) -> Path:
    return built.shared(folder / "driver", "libcuda.so.1", "fake_cuda.c").parent
