"""The double, built once, and a machine of eight idle GPUs for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_nvml.build import build
from tests.fake_nvml.scene import Scene, create


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return create(tmp_path / "scene")
