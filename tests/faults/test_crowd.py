"""Tests of many windows: bounded memory and descriptors, a verdict for each, and a clear refusal beyond the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.daemon import window_limits
from gpuwatch.daemon import windows as windows_module
from gpuwatch.errors import UsageError
from gpuwatch.store import Store
from gpuwatch.wire.messages import Open
from tests.faults import crowd
from tests.gpuwatch.daemon.windows_double import MockJudge, windows
from tests.gpuwatch.live import Live, running


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("crowd")) as live:
        yield live


def test_thirty_windows_at_once_are_all_judged(daemon: Live) -> None:
    figures = crowd.at_once(daemon, 30)
    assert figures["without_findings_count"] == 0
    assert figures["after"]["descriptors_count"] <= figures["before"]["descriptors_count"] + 4
    assert figures["with_all_open"]["descriptors_count"] >= 30


def test_sequential_windows_leave_only_their_records(daemon: Live) -> None:
    """The daemon's descriptors and memory hardly grow over windows in sequence."""
    figures = crowd.in_sequence(daemon, 40, asked_every=20)
    assert figures["verdicts"]["opened"] == 40
    first, last = figures["taken"][0], figures["taken"][-1]
    assert last["descriptors_count"] <= first["descriptors_count"] + 4
    assert last["memory_bytes"] - first["memory_bytes"] < 12 << 20


def test_too_many_windows_of_one_user_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon refuses further windows of a user at the limit, with a remedy, and still serves other users."""
    most_count = 50  # 2048 windows would take seconds
    for module in (window_limits, windows_module):
        monkeypatch.setattr(module, "OWN_COUNT", most_count)
    store = Store(tmp_path / "state", source="nvml", boot_id="boot")

    async def many() -> None:
        some = windows(store, tmp_path, MockJudge())
        for _ in range(most_count):
            some.open(Open(), pid=0, uid=0)
        with pytest.raises(UsageError, match="wait for each verdict"):
            some.open(Open(), pid=0, uid=0)
        some.open(Open(), pid=0, uid=1)  # another user can still open a window

    asyncio.run(many())
    store.close()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_thousand_windows_at_once_use_bounded_memory(daemon: Live) -> None:
    figures = crowd.at_once(daemon, 1000)
    assert figures["with_all_open"]["memory_bytes"] - figures["before"]["memory_bytes"] < 100 << 20
    assert figures["open_p50_s"] < 0.1


@pytest.mark.soak
@pytest.mark.timeout(20_000)
def test_hundred_thousand_windows_in_sequence_leave_no_growth(daemon: Live) -> None:
    figures = crowd.in_sequence(daemon, 100_000)
    crowd.check_sequence(figures)
