"""Tests of waiting for the verdicts of many windows together."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings, load
from tests.gpuwatch.live import running
from tests.waiting import sample_for


def closed(settings: Settings, count: int) -> list[gpuwatch.Window]:
    windows = []
    for number in range(count):
        with gpuwatch.window(f"number {number}", settings=settings) as w:
            sample_for(0.05)
        windows.append(w)
    return windows


def test_verdicts_returns_verdicts_in_the_order_of_windows(copying: Settings) -> None:
    windows = closed(copying, 5)
    found = gpuwatch.verdicts(windows)
    assert [each.label for each in found] == [f"number {number}" for number in range(5)]
    assert found == tuple(each.verdict for each in windows)
    assert gpuwatch.verdicts([]) == ()


def test_verdicts_closes_its_shared_connection(copying: Settings) -> None:
    windows = closed(copying, 3)
    with connect(copying) as client:
        before = client.status()["clients_count"]
        gpuwatch.verdicts(iter(windows))
        assert client.status()["clients_count"] == before, "the connection is closed"


def test_verdicts_reach_two_daemons(copying: Settings, tmp_path: Path) -> None:
    with running(tmp_path) as live:
        found = gpuwatch.verdicts([*closed(copying, 1), *closed(live.settings, 1), *closed(copying, 1)])
    assert all(each.findings for each in found)


def test_window_without_a_daemon_is_unproven_among_others(copying: Settings) -> None:
    nowhere = load({"socket": "/proc/nowhere/s", "state": "/proc/nowhere"})
    first, lost = gpuwatch.verdicts([*closed(copying, 1), *closed(nowhere, 1)])
    assert first.findings
    assert (lost.status, lost.findings) == (gpuwatch.Status.UNPROVEN, ())


def test_verdicts_refuses_other_objects_and_open_windows(copying: Settings) -> None:
    with pytest.raises(gpuwatch.UsageError, match="expected windows, found"):
        gpuwatch.verdicts(["gemm"])  # type: ignore[list-item]  # the tested mistake
    with gpuwatch.window(settings=copying) as w, pytest.raises(gpuwatch.UsageError, match="has ended"):
        gpuwatch.verdicts([w])
