"""Tests that the judge gives each scene's benchmark the status and the rules that the scene declares."""

from __future__ import annotations

import pytest

from annotate.judge import judge
from annotate.verdict import Status, Verdict
from gpuwatch.sources.simulated import SCENES, simulate
from gpuwatch.sources.simulated.scenes import FOREVER_S


def verdict_of(scene: str, seed: int = 0) -> Verdict:
    return judge(simulate(scene, seed=seed)[0])


@pytest.mark.parametrize("name", SCENES)
def test_scene_gets_its_declared_status_and_rules(name: str) -> None:
    """The scene's benchmark gets the declared status, and at least the declared rules are found or unobserved."""
    verdict = verdict_of(name)
    assert verdict.simulated
    reported = {finding.rule for finding in (*verdict.hazards, *verdict.unobserved)}
    assert SCENES[name].rules <= reported
    why = [(finding.rule, finding.severity, finding.says) for finding in verdict.hazards]
    assert verdict.status is Status(SCENES[name].status), (why, verdict.why)


@pytest.mark.parametrize("name", ["steady-copy", "steady-gemm", "attention", "convolution", "large-gemm"])
def test_quiet_scene_has_only_notes(name: str) -> None:
    for seed in range(5):
        verdict = verdict_of(name, seed)
        assert {finding.severity for finding in verdict.hazards} <= {"note"}, [(f.rule, f.says) for f in verdict.hazards]


def test_scene_with_a_temporary_mishap_repeats() -> None:
    """Every scene with a mishap that ends has a finite length, so the mishap recurs for a later window."""
    passing = [scene for scene in SCENES.values() if any(mishap.end_s < FOREVER_S for mishap in scene.mishaps)]
    assert [scene.name for scene in passing if scene.length_s >= FOREVER_S] == []


def test_scene_verdicts_differ() -> None:
    """A steady copy, a start from idle and a neighbour get three different statuses."""
    assert len({verdict_of(name).status for name in ("steady-copy", "from-idle", "neighbour")}) == 3
