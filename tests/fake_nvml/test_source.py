"""Tests of the source contract and of opening ahead, with gpuwatch's NVML source, NVIDIA's binding and the mock driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fake_nvml.running import output_of
from tests.fake_nvml.scene import Scene
from tests.waiting import PATIENCE_S


def test_nvml_source_keeps_the_contract_on_the_mock(contract: subprocess.Popen[str]) -> None:
    output, _ = contract.communicate(timeout=2 * PATIENCE_S)
    assert contract.returncode == 0, output
    assert output.count("PASSED") == output.count("[nvml") >= 15, output


def test_driver_opened_ahead_lists_every_gpu_once(scene: Scene, library: Path) -> None:
    """The listing that began ahead serves the first source, and the next source lists anew."""
    found = output_of(scene, library, "serial", "ahead")
    assert found == {"listed": [[gpu.uuid for gpu in scene.gpus]] * 2, "two": True}
    assert [gpu.calls_count("nvmlDeviceGetName") for gpu in scene.gpus] == [2] * len(scene.gpus)
