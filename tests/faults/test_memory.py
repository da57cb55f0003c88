"""Tests of a daemon without further memory: benchmarks continue, failures are reported, and the daemon recovers."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.client.connection import connect
from tests.busy_machine import BUSY_MACHINE
from tests.gpuwatch.live import Live, running
from tests.waiting import let_pass, sample_for


def limit(pid: int, most_bytes: int) -> None:
    """Limit the address space of a process."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (most_bytes, hard))


def mapped_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * 4096


def window(live: Live, label: str) -> gpuwatch.Window:
    """Measure a window of 0.2 s."""
    with gpuwatch.window(label, settings=live.settings, policy=BUSY_MACHINE) as w:
        sample_for(0.2)
    return w


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")
def test_daemon_out_of_memory_recovers(tmp_path: Path) -> None:
    """Windows during the shortage have a verdict or a reason, and the next window is judged."""
    with running(tmp_path) as live:
        assert window(live, "before").verdict.findings
        pid = live.process.pid
        limit(pid, mapped_bytes(pid))  # no further mapping is possible; free heap memory remains
        let_pass(0.3, "the daemon continues without more memory")
        for number in range(2):
            verdict = window(live, f"meanwhile {number}").verdict
            assert verdict.findings or verdict.why, "judged, or unproven with a reason"
        if live.process.poll() is None:  # otherwise the next window starts another daemon
            limit(pid, resource.RLIM_INFINITY)
        let_pass(0.5, "the daemon tries failed work again")
        after = window(live, "after").verdict
        assert after.findings, after.why
        with connect(live.settings) as client:
            (gpu,) = client.status()["gpus"]
            serving = client.welcome.pid
        assert gpu["lost"] is None
        if serving != pid:
            os.kill(serving, signal.SIGTERM)
