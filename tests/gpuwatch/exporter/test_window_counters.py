"""Tests of the counters of judged windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from annotate.evidence import Trace
from annotate.judge import judge
from annotate.verdict import Answered, Finding, Status, Verdict
from gpuwatch import clock
from gpuwatch.exporter.counters import CANARIES_COUNT, Outcomes
from gpuwatch.sources.simulated import simulate
from gpuwatch.store import Run
from tests.gpuwatch.exporter.fleet import Fleet, of


def run(status: str, *findings: Finding) -> Run:
    verdict = Verdict(status=Status.FLAGGED, findings=findings, claim="sustained")
    return Run(
        id="r", label="secret run", claim="sustained", policy={}, boot_id="b", begin_ns=0, end_ns=2_000_000_000,
        begun_wall_s=0.0, pid=1, uid=1, user="ada", process="python", uuids=(), pids=frozenset(), declared={}, host=None,
        status=status, why="", parent=None, source="nvml", simulated=False, verdicts=(verdict.to_dict(),),
    )  # fmt: skip


def found(rule: str, severity: str, **more: Any) -> Finding:
    return Finding(rule=rule, answered=Answered.FOUND, severity=severity, **more)


def test_outcomes_count_status_finding_length_and_judging() -> None:
    fleet = Fleet("idle", outcomes=Outcomes())
    begun = fleet.scrape()
    for status in Status:
        assert of(begun, "gpuwatch_windows_total", status=status.value) == 0  # so that the first window is an increase
    judged = fleet.outcomes.judged
    hazards = (found("power-limited", "note"), found("contention-process", "reject", accepted=True))
    judged(run("flagged", *hazards, Finding(rule="thermal", answered=Answered.CLEAR)), 0.15)
    judged(run("flagged", hazards[0], Finding(rule="bimodal", answered=Answered.UNOBSERVED, failure="OverflowError")), 0.15)
    judged(replace(run("unproven"), verdicts=()), None)
    judged(run("open"), 1.0)  # "open" is not a status of a verdict
    page = fleet.scrape()
    assert of(page, "gpuwatch_windows_total", status="flagged") == 2
    assert of(page, "gpuwatch_windows_total", status="unproven") == 1
    assert of(page, "gpuwatch_findings_total", rule="power-limited", severity="note") == 2
    assert of(page, "gpuwatch_findings_total", rule="contention-process", severity="reject") == 1
    assert of(page, "gpuwatch_findings_total", rule="throttle-thermal", severity="flag") == 0
    assert of(page, "gpuwatch_rule_failures_total", rule="bimodal") == 1
    assert of(page, "gpuwatch_rule_failures_total", rule="throttle-thermal") == 0
    assert of(page, "gpuwatch_window_duration_seconds_bucket", status="flagged", le="1.0") == 0
    assert of(page, "gpuwatch_window_duration_seconds_bucket", status="flagged", le="3.0") == 2
    assert of(page, "gpuwatch_judging_seconds_bucket", le="0.2") == 2
    assert of(page, "gpuwatch_judging_seconds_count") == 2
    assert of(page, "gpuwatch_windows_in_hand") == 2
    assert "secret run" not in fleet.text()
    assert "ada" not in {value for _, labels in page for _, value in labels}


def test_outcomes_count_bound_repeatability_and_proofs() -> None:
    """A verdict's bound, the leading number's repeatability and the proofs are counted, without unknown values."""
    fleet = Fleet("idle", outcomes=Outcomes())
    assert of(fleet.scrape(), "gpuwatch_proofs_total", proof="books", state="unproven") == 0
    (evidence,) = simulate("steady-copy")
    seen = judge(evidence)
    unwatched = judge(replace(evidence, trace=Trace(), timings=None, absence="no daemon was running"))
    for verdict in (seen, unwatched):
        fleet.outcomes.judged(replace(run(verdict.status.value), verdicts=(verdict.to_dict(),)), 0.15)
    page = fleet.scrape()
    assert of(page, "gpuwatch_proofs_total", proof="books", state="shown") == 1
    assert of(page, "gpuwatch_proofs_total", proof="books", state="unproven") == 1
    assert of(page, "gpuwatch_window_deviation_bound_ratio_bucket", le="0.01") == 2
    assert of(page, "gpuwatch_window_repeatability_ratio_count") == 1


def test_outcomes_omit_an_unknown_bound() -> None:
    (evidence,) = simulate("neighbour", timings=False)
    verdict = judge(evidence).to_dict()
    assert verdict["budget"]["numbers"][0]["bound_ratio"] is None
    fleet = Fleet("idle", outcomes=Outcomes())
    fleet.outcomes.judged(replace(run(verdict["status"]), verdicts=(verdict,)), None)
    assert of(fleet.scrape(), "gpuwatch_window_deviation_bound_ratio_count") == 0


def test_outcomes_store_the_last_canary_of_a_gpu() -> None:
    """Only a judged window on one GPU with a valid clock stores its canary."""
    fleet = Fleet("idle", outcomes=Outcomes())
    (uuid,) = fleet.uuids
    told = {"canary_clock_mhz": 1978.0, "canary_copy_bytes_count": 4e12}
    assert of(fleet.scrape(), "gpuwatch_gpu_canary_clock_hertz", uuid=uuid) is None
    fleet.outcomes.judged(replace(run("valid"), uuids=(uuid,), declared=told), 0.1)
    fleet.outcomes.judged(replace(run("valid"), uuids=(uuid,), declared={"canary_clock_mhz": -5}), 0.1)
    fleet.outcomes.judged(replace(run("valid"), uuids=(uuid, "other"), declared={"canary_clock_mhz": 900.0}), 0.1)
    fleet.outcomes.judged(replace(run("unproven"), uuids=(uuid,), declared={"canary_clock_mhz": 900.0}), None)
    page = fleet.scrape()
    assert of(page, "gpuwatch_gpu_canary_clock_hertz", uuid=uuid) == 1.978e9
    assert of(page, "gpuwatch_gpu_canary_copy_bytes_per_second", uuid=uuid) == 4e12
    assert of(page, "gpuwatch_gpu_canary_timestamp_seconds", uuid=uuid) == pytest.approx(clock.wall_s(), abs=60)


def test_outcomes_bound_the_number_of_canaries() -> None:
    """The number of stored canaries is bounded, because a client may name any GPU; a stored canary is updated."""
    outcomes = Outcomes()
    for number in range(2 * CANARIES_COUNT):
        outcomes.judged(replace(run("valid"), uuids=(f"GPU-{number}",), declared={"canary_clock_mhz": 1000.0}), 0.1)
    outcomes.judged(replace(run("valid"), uuids=("GPU-0",), declared={"canary_clock_mhz": 1500.0}), 0.1)
    assert len(outcomes.canaries) == CANARIES_COUNT
    assert outcomes.canaries["GPU-0"].clock_hz == 1.5e9
