"""Tests of the alerts on slow twins over synthetic fleets with known slow GPUs, with promtool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dashboards.alert_files import Alert, rule_file
from dashboards.slow_twin import SLOW_TWINS
from tests.dashboards.twin_fleets import MINUTES, STEP_MINUTES, MadeFleet, canaries, fleets, input_series
from tests.examples import SHARE
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S

NUMBERS = range(16 if SHARE == 1.0 else 1)


def run_promtool(folder: Path, named: Mapping[str, tuple[str, MadeFleet]]) -> str:
    """Return promtool's output, which is empty if in every fleet exactly the slow GPUs raise the alert."""
    at_once = [replace(rule, hold="0m") if isinstance(rule, Alert) else rule for rule in SLOW_TWINS.rules]
    (folder / "rules.yml").write_text(rule_file([replace(SLOW_TWINS, rules=at_once)]))
    file = {
        "rule_files": [str(folder / "rules.yml")],
        "evaluation_interval": f"{MINUTES}m",
        "tests": [{
            "interval": f"{STEP_MINUTES}m",
            "input_series": [each for job, (_, fleet) in named.items() for each in input_series(job, fleet)],
            "promql_expr_test": [expected(job, alert, fleet) for job, (alert, fleet) in named.items()],
        }],
    }  # fmt: skip
    (folder / "cases.yml").write_text(json.dumps(file))  # JSON is YAML
    command = [program("promtool"), "test", "rules", str(folder / "cases.yml")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return "" if found.returncode == 0 else found.stdout + found.stderr


def expected(job: str, alert: str, fleet: MadeFleet) -> dict[str, Any]:
    """Return a test for promtool (JSON, hence Any)."""
    samples = [{"labels": f'{{instance="h{host}",gpu="{index}"}}', "value": 1} for host, index in sorted(fleet.slow)]
    fires = f'sum by (instance, gpu) (ALERTS{{alertname="{alert}",alertstate="firing",job="{job}"}})'
    return {"expr": fires, "eval_time": f"{MINUTES}m", "exp_samples": samples}


def test_slow_twins_are_found_and_healthy_fleets_are_quiet(tmp_path: Path) -> None:
    """Exactly the slow GPUs of each fleet raise GpuwatchSlowTwin, at any power, model and work."""
    named = {f"gpuwatch {number}: {name}": ("GpuwatchSlowTwin", fleet) for number in NUMBERS for name, fleet in fleets(number)}
    assert sum(bool(fleet.slow) for _, fleet in named.values()) >= 6
    assert run_promtool(tmp_path, named) == ""


def test_slow_canary_is_found_at_the_power_limit(tmp_path: Path) -> None:
    """A canary shows the slow GPU of a fleet at its power limit."""
    named = {f"gpuwatch {number}": ("GpuwatchSlowCanary", canaries(number)) for number in NUMBERS}
    assert run_promtool(tmp_path, named) == ""


def test_case_with_another_slow_gpu_fails(tmp_path: Path) -> None:
    """A case fails if the alert is expected on another GPU."""
    fleet = dict(fleets(0))["one slow GPU"]
    moved = replace(fleet, slow=frozenset({(5, 7)} if (5, 7) not in fleet.slow else {(5, 6)}))
    assert "FAILED" in run_promtool(tmp_path, {"gpuwatch": ("GpuwatchSlowTwin", moved)})
