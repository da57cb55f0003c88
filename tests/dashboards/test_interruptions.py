"""Tests of every alert through a scrape gap, a daemon restart and a driver reload, with promtool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import ALERTS
from tests.dashboards.interruption_cases import alone, everything, quiet
from tests.dashboards.interruptions import DAYS, HOURS, Interruption, Scale
from tests.dashboards.troubles import HEALTHY, TROUBLES
from tests.gpuwatch.programs import program

RULES = Path(__file__).parents[2] / "dashboards" / "alerts.yml"
SCALES = {"hours": HOURS, "days": DAYS}


def failures(folder: Path, scale: Scale, cases: Sequence[dict[str, Any]]) -> str:
    """Return promtool's output for failed cases, empty if all pass."""
    file = {"rule_files": [str(RULES)], "evaluation_interval": f"{scale.evaluation_minutes}m", "tests": cases}
    (folder / "cases.yml").write_text(json.dumps(file))  # JSON is YAML
    command = [program("promtool"), "test", "rules", str(folder / "cases.yml")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return "" if found.returncode == 0 else found.stdout + found.stderr


def test_every_alert_meets_every_interruption() -> None:
    """Each alert has a trouble in series of the healthy host, and meets the gap while the trouble lasts."""
    assert set(TROUBLES) == {alert.name for alert in ALERTS}
    for name, trouble in TROUBLES.items():
        assert set(trouble.series) <= set(HEALTHY), name
        assert set(Interruption) - trouble.ended_by >= {Interruption.NONE, Interruption.GAP}, name


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("interruption", Interruption)
def test_every_alert_fires_and_the_healthy_job_is_quiet(tmp_path: Path, scale: str, interruption: Interruption) -> None:
    """Each alert but GpuwatchAbsent fires for its trouble alone, or ends with the interruption; a healthy host raises none."""
    assert failures(tmp_path, SCALES[scale], everything(SCALES[scale], interruption)) == ""


@pytest.mark.parametrize("interruption", Interruption)
def test_absence_is_reported_through_every_interruption(tmp_path: Path, interruption: Interruption) -> None:
    assert failures(tmp_path, HOURS, [alone("GpuwatchAbsent", interruption)]) == ""


def test_case_with_a_wrong_expectation_fails(tmp_path: Path) -> None:
    """A case fails for an expected alert on a healthy host, and for an unexpected alert."""
    expects_one = alone("GpuwatchGpuLost", Interruption.NONE)
    well = quiet(HOURS, Interruption.NONE)
    swapped = [{**expects_one, "input_series": well["input_series"]}, {**well, "input_series": expects_one["input_series"]}]
    for case in swapped:
        assert failures(tmp_path, HOURS, [case])
