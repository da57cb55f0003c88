"""The rule files by promtool's own check, and its unit tests of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.gpuwatch.programs import program

FOLDER = Path(__file__).parents[2] / "dashboards"


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["alerts.yml", "recording.yml", "dcgm-names.yml"])
def test_promtool_finds_nothing_wrong(name: str) -> None:
    found = promtool("check", "rules", "--lint=all", "--lint-fatal", str(FOLDER / name))
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("path", sorted((FOLDER / "tests").glob("*.yml")), ids=lambda path: path.stem)
def test_alerts_and_recordings_do_what_their_cases_say(path: Path) -> None:
    found = promtool("test", "rules", str(path))
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_case_that_expects_the_wrong_thing_fails(tmp_path: Path) -> None:
    wrong = (FOLDER / "tests" / "alerts.yml").read_text().replace('alertname="GpuwatchStale"', 'alertname="GpuwatchStill"')
    (tmp_path / "wrong.yml").write_text(wrong.replace("../alerts.yml", str(FOLDER / "alerts.yml")))
    assert promtool("test", "rules", str(tmp_path / "wrong.yml")).returncode == 1
