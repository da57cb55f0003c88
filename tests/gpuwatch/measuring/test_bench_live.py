"""Tests of bench() with a real function on the host, judged by a real daemon on a simulated GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from annotate.budget import Proof, ProofState
from annotate.verdict import Status
from gpuwatch.config.settings import Settings
from gpuwatch.measuring import bench


def test_bench_stores_window_of_host_function(copying: Settings) -> None:
    data = np.arange(20_000.0)
    measured = bench(
        np.sort,
        args=(data,),
        reference=np.sort,
        flops=1e5,
        label="sort",
        settings=copying,
        min_s=0.3,
        max_s=0.6,
        warmup_max_s=0.3,
    )
    assert measured.timer == "host"
    assert measured.cache is None
    assert measured.run is not None
    assert 1e-6 < measured.min_s <= measured.median_s <= measured.p99_s
    assert measured.verdict.simulated
    assert "SIMULATED" in str(measured)
    assert json.loads(json.dumps(measured.to_dict(), allow_nan=False))["run"] == measured.run
    # The judge had the times: only windows with times are asked for the proof of steady times.
    assert measured.verdict.budget is not None
    (steady,) = (proof for proof in measured.verdict.budget.proofs if proof.proof is Proof.STEADY_TIMES)
    assert steady.state is not ProofState.NOT_ASKED


def test_bench_without_daemon_is_unproven(copying: Settings, tmp_path: Path) -> None:
    """Without a daemon there are figures and an unproven verdict."""
    nowhere = replace(copying, socket=tmp_path / ("x" * 200))
    measured = bench(sum, args=([1, 2, 3],), settings=nowhere, min_s=0.1, max_s=0.2, warmup_max_s=0.1, retries=2)
    assert measured.verdict.status is Status.UNPROVEN
    assert measured.verdict.why
    assert len(measured.attempts) == 1
    assert measured.calls_count > 1
    assert "UNPROVEN" in str(measured)
