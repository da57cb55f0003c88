"""Tests that a quiet scene has at most a note about sharing and locks if host, harness and stamps report true facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.verdict import Verdict
from gpuwatch.sources.simulated import simulate

SHARING_AND_LOCK_RULES = {
    "locked-clock-missed", "clock-controller-present", "clock-low-no-reason", "nvml-clock-untrue", "contention-shared-partition",
    "contention-self", "display-active", "numa-pcie-affinity", "power-reading-stale", "sampler-perturbs", "clock-source-step",
}  # fmt: skip


def witnessed(scene: str, seed: int) -> Evidence:
    """Return the scene's evidence with the facts that a daemon and a harness add."""
    about = simulate(scene, seed=seed)[0]
    timings, device = about.timings, about.device
    assert timings is not None
    assert timings.sm_clock_mhz is not None
    assert device is not None
    host = replace(about.host, numa_nodes="0,1", sharing="", wall_step_s=2e-6, watcher_cpu_s=0.04 * about.window.length_s)
    told = {
        "busy_ratio": float(timings.took_s.sum()) / about.window.length_s,
        "true_clock_mhz": float(timings.sm_clock_mhz.mean()),
        "stamped_s": about.window.length_s,
        "canary_clock_mhz": 1977.0,
        "canary_copy_bytes_count": 4.205e12,
        "canary_record_clock_mhz": 1979.0,
        "canary_record_copy_bytes_count": 4.21e12,
        "canary_record_count": 9,
    }
    return replace(about, host=host, declared=told, device=replace(device, numa_node_count=1, simulated=False))


def hazards(verdict: Verdict) -> dict[str, str | None]:
    return {hazard.rule: hazard.severity for hazard in verdict.hazards if hazard.rule in SHARING_AND_LOCK_RULES}


@pytest.mark.parametrize("scene", ["steady-copy", "steady-gemm", "attention", "convolution", "large-gemm"])
@pytest.mark.parametrize("seed", [0, 1])
def test_quiet_scene_has_no_hazard_of_sharing_or_locks(scene: str, seed: int) -> None:
    """A quiet scene has no finding of the sharing and lock rules beyond a note about NVML's clock."""
    verdict = judge(witnessed(scene, seed))
    assert hazards(verdict).keys() <= {"nvml-clock-untrue"}
    assert set(hazards(verdict).values()) <= {"note"}
    unobserved = {finding.rule for finding in verdict.unobserved} & SHARING_AND_LOCK_RULES
    assert unobserved <= {"locked-clock-missed"}  # no lock was set


def test_quiet_scene_nvml_clock_is_untrue_only_when_capped() -> None:
    """The rule ``nvml-clock-untrue`` reports the capped scene, and not the uncapped one."""
    assert "nvml-clock-untrue" in hazards(judge(witnessed("steady-gemm", 0)))
    assert "nvml-clock-untrue" not in hazards(judge(witnessed("steady-copy", 0)))
