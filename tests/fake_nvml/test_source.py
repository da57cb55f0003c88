"""Test of the source contract with gpuwatch's NVML source, NVIDIA's binding and the mock driver."""

from __future__ import annotations

import subprocess

from tests.waiting import PATIENCE_S


def test_nvml_source_keeps_the_contract_on_the_mock(contract: subprocess.Popen[str]) -> None:
    output, _ = contract.communicate(timeout=2 * PATIENCE_S)
    assert contract.returncode == 0, output
    assert output.count("PASSED") == output.count("[nvml") >= 15, output
