"""Tests of the rule files with promtool's check and the unit tests in dashboards/tests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S

FOLDER = Path(__file__).parents[2] / "dashboards"


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("name", ["alerts.yml", "recording.yml", "dcgm-names.yml"])
def test_rule_files_pass_the_check_of_promtool(name: str) -> None:
    found = promtool("check", "rules", "--lint=all", "--lint-fatal", str(FOLDER / name))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("path", sorted((FOLDER / "tests").glob("*.yml")), ids=lambda path: path.stem)
def test_rules_pass_their_unit_tests(path: Path) -> None:
    found = promtool("test", "rules", str(path))
    assert found.returncode == 0, found.stdout + found.stderr


def test_unit_test_with_a_wrong_expectation_fails(tmp_path: Path) -> None:
    case = {
        "rule_files": [str(FOLDER / "alerts.yml")],
        "tests": [{
            "interval": "1m",
            "input_series": [{"series": 'gpuwatch_gpu_up{job="gpuwatch",instance="a",uuid="U",gpu="0"}', "values": "0x9"}],
            "promql_expr_test": [{"expr": 'ALERTS{alertname="GpuwatchGpuLost"}', "eval_time": "5m", "exp_samples": []}],
        }],
    }  # fmt: skip
    (tmp_path / "wrong.yml").write_text(json.dumps(case))  # JSON is YAML
    assert promtool("test", "rules", str(tmp_path / "wrong.yml")).returncode == 1
