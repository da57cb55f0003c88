"""Fixtures of the mock driver: the library, built once, eight idle GPUs for each test, and the contract's process."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_nvml.build import LIBRARY, build
from tests.fake_nvml.scene import Client, Scene, create


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the mock driver; the first worker that needs the driver compiles the driver there."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    built = shared / "nvml"
    with (shared / "nvml.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return built if (built / LIBRARY).exists() else build(built)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return create(tmp_path / "scene")


@pytest.fixture(scope="session")
def contract(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield the process that runs the sources' contract tests with gpuwatch's NVML source on the mock driver."""
    scene = create(tmp_path_factory.mktemp("contract") / "scene", gpus=2)
    scene.gpus[0].partition("1g.18gb")
    scene.gpus[0].clients = [
        Client(pid=os.getpid(), sm_percent=50),
        Client(pid=4242, hidden=True, memory_bytes=0, sm_percent=10),
    ]
    for name in ("energy_mj", "power_cap_ns", "power_violation_ns"):
        scene.gpus[0].moves(name, 1e6)
    asked = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "-k", "nvml", "-rA"]
    environment = {**os.environ, **scene.environment(library)}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [*asked, "tests/gpuwatch/sources/test_contract.py"], env=environment, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.wait()
