"""The real harnesses that `make harness` installs, each in its own folder, and helpers to run programs with a harness."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from annotate.evidence import Evidence
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.gpuwatch.live import judged_run
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "harness"


def folder(name: str) -> str:
    """Return the folder of a harness.  Without the folder, fail the test on CI, and skip the test elsewhere."""
    found = ROOT / ".harness" / name
    if (found / "requirements.txt").exists():
        return str(found)
    why = f"needs {name} in {found.relative_to(ROOT)}: make harness"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def environment(settings: Settings, *paths: str, **more: str) -> dict[str, str]:
    """Return the environment of a program that uses a test's daemon and modules from these paths."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWATCH", "PYTHON", "PYTEST"))}
    ours = {f"GPUWATCH_{name.upper()}": str(getattr(settings, name)) for name in ("source", "state", "socket")}
    return {**kept, **ours, "PYTHONPATH": os.pathsep.join(paths), **more}


def run(*command: str, given: Mapping[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=given, cwd=cwd, timeout=PATIENCE_S, check=False)


def run_python(*arguments: str, given: Mapping[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, *arguments, given=given, cwd=cwd)


def read_json(ended: subprocess.CompletedProcess[str]) -> Any:
    """Return the JSON in the last line of a program's output; the program must have succeeded."""
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def evidence_of(settings: Settings, run_id: str) -> Evidence:
    """Return the stored evidence of a window after its verdict."""
    found = judged_run(settings.state, run_id)
    with Reader(settings.state) as reader:
        return reader.evidence(found, reader.devices()[0].uuid)
