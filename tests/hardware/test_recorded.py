"""Tests of windows recorded on a real H200: verdicts, also from an nvidia-smi log alone, and anonymity."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from annotate.capsule.pack import unpack
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.verdict import Status, Verdict
from tests.hardware import render

NAMES = [scenario["name"] for scenario in json.loads(render.DATA.read_text())["scenarios"]]


@cache
def recorded() -> dict[str, tuple[dict[str, Any], Evidence, Verdict]]:
    return {scenario["name"]: (scenario, evidence, verdict) for scenario, evidence, verdict in render.judged()}


@pytest.mark.parametrize("name", NAMES)
def test_recorded_window_has_the_expected_verdict(name: str) -> None:
    scenario, evidence, verdict = recorded()[name]
    expected = scenario["expected"]
    assert verdict.status.value in expected["status"].split("|"), str(verdict)
    assert set(expected["rules"]) <= {hazard.rule for hazard in verdict.hazards}
    assert not verdict.simulated
    assert evidence.window.label == scenario["name"]


def test_recording_covers_every_verdict() -> None:
    assert {verdict.status for _, _, verdict in recorded().values()} == set(Status)


def test_smi_log_shows_onset_and_gaps_and_is_unproven() -> None:
    """A log of nvidia-smi shows the onset and the gaps, but a steady window is unproven."""
    verdicts = dict(render.from_log())
    assert verdicts["steady-gemm-4096"].status is Status.UNPROVEN
    assert "regime-change" in [hazard.rule for hazard in verdicts["from-idle-gemm-4096-1s"].hazards]
    assert "bursty-duty-cycle" in [hazard.rule for hazard in verdicts["sleeps-100ms-gemm-16384"].hazards]


SIDE_STREAM = unpack((render.TRACES / "h200-side-stream.capsule").read_bytes())


@pytest.mark.parametrize("evidence", SIDE_STREAM)
def test_work_on_another_stream_is_found(evidence: Evidence) -> None:
    """The verdict flags work on another stream, which the timed iterations miss."""
    verdict = judge(evidence)
    (finding,) = (each for each in verdict.hazards if each.rule == "wrong-stream")
    assert verdict.status in (Status.FLAGGED, Status.REJECTED)
    assert "the GPU worked 1.6" in finding.says or "the GPU worked 1.5" in finding.says
    assert finding.severity == "flag"


def test_recordings_of_real_windows_are_anonymous() -> None:
    every = [*SIDE_STREAM, *(evidence for _, evidence, _ in recorded().values())]
    assert {evidence.device.uuid for evidence in every if evidence.device} == {render.MASKED_UUID}
    assert {evidence.host.hostname for evidence in every} == {"host"}
