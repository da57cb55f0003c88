"""Tests of a benchmark's canary: declared with its record, stored only after a valid run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import gpuwatch
from annotate.verdict import Status
from gpuwatch.measuring.canary_record import CanaryRun
from tests.gpuwatch.measuring.scripted import ScriptedTimer, World, constant, nothing


@pytest.mark.parametrize("status", list(Status))
def test_canary_is_stored_after_valid_verdict(tmp_path: Path, status: Status) -> None:
    """A canary is always declared, and stored only after a valid verdict."""
    canary = CanaryRun(tmp_path, "GPU-1", 1965.0, 4.1e12)
    for _ in range(3):
        world = World(ScriptedTimer(constant(1e-3)), statuses=(status,), canary=canary)
        gpuwatch.bench(nothing, timer=world.timer, seams=world.environment(), min_s=0.1)
    told = world.windows[0].declared
    assert told["canary_clock_mhz"] == 1965.0
    assert told.get("canary_record_count") == (2 if status is Status.VALID else None)
    assert told.get("canary_record_clock_mhz") == (1965.0 if status is Status.VALID else None)
    slow = replace(canary, clock_mhz=1700.0)
    assert slow.facts.get("canary_record_clock_mhz") == (1965.0 if status is Status.VALID else None)


def test_unwritable_state_folder_does_not_fail_bench() -> None:
    world = World(ScriptedTimer(constant(1e-3)), canary=CanaryRun(Path("/proc/nowhere"), "GPU-1", 1965.0, None))
    assert gpuwatch.bench(nothing, timer=world.timer, seams=world.environment(), min_s=0.1).verdict.status is Status.VALID
