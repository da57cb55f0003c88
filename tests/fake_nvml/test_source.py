"""Tests of the source contract with NVIDIA's own binding and the mock driver below gpuwatch's source."""

from __future__ import annotations

import subprocess

from tests.waiting import PATIENCE_S


def test_the_source_keeps_its_contract_on_the_double(contract: subprocess.Popen[str]) -> None:
    said, _ = contract.communicate(timeout=2 * PATIENCE_S)
    assert contract.returncode == 0, said
    assert said.count("PASSED") == said.count("[nvml") >= 15, said
