"""Tests of a changed wall clock and of a suspension while a daemon runs: windows and audit keep their times."""

from __future__ import annotations

import functools
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch
from annotate.verdict import Status
from gpuwatch import clock
from gpuwatch.host import suspend
from gpuwatch.store import Reader
from tests.busy_machine import BUSY_MACHINE
from tests.faults.stores import committed_ns
from tests.gpuwatch import forked
from tests.gpuwatch.live import Live, running
from tests.waiting import PATIENCE_S, sample_for, wait_until

HOUR_S = 3600.0
SLACK_S = 120.0  # the delay of a busy machine, far below an hour


class SetClocks:
    """The offsets of a daemon's clocks, set through a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set()

    def set(self, *, wall_s: float = 0.0, boot_s: float = 0.0) -> None:
        with self._path.open("r+b" if self._path.exists() else "w+b") as file:
            file.write(struct.pack("=2q", round(wall_s * 1e9), round(boot_s * 1e9)))


@pytest.fixture
def set_clocks(tmp_path: Path) -> Iterator[tuple[Live, SetClocks]]:
    """Run a daemon with a preloaded library that shifts its clocks."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("setting the clocks of one process needs a C compiler: cc")
    library = tmp_path / "clocks.so"
    source = Path(__file__).with_name("clocks.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    clocks = SetClocks(tmp_path / "clocks")
    environment = {"LD_PRELOAD": str(library), "TEST_CLOCKS": str(tmp_path / "clocks")}
    with running(tmp_path, environment=environment) as live:
        yield live, clocks


def test_wall_clock_changes_do_not_change_windows(
    set_clocks: tuple[Live, SetClocks],
) -> None:
    """A wall clock set back and forth does not change the lengths of windows, and the daemon continues to read.

    The store and ``audit --since`` use the machine's wall clock at each start.
    """
    live, clocks = set_clocks
    lengths, set_ns = {}, {}
    begun_s = clock.wall_s()
    for name, wall_s in (("ahead", HOUR_S), ("back", -HOUR_S)):
        with gpuwatch.window(name, settings=live.settings, policy=BUSY_MACHINE) as w:
            sample_for(0.4)
            set_ns[name] = clock.now_ns()
            clocks.set(wall_s=wall_s)
            sample_for(0.8)
            wait_until(functools.partial(is_read_since, live, set_ns[name]), what="the daemon continues to read the GPU")
        assert w.begin_ns is not None
        assert w.end_ns is not None
        lengths[name] = w.end_ns - w.begin_ns
        assert w.verdict.findings
    with gpuwatch.window("after", settings=live.settings, policy=BUSY_MACHINE) as w:
        sample_for(0.6)
    assert w.verdict.findings
    with Reader(live.settings.state) as reader:
        runs = {str(run.label): run for run in reader.runs()}
        for name, length_ns in lengths.items():
            assert runs[name].end_ns is not None
            assert abs((runs[name].end_ns or 0) - runs[name].begin_ns - length_ns) < SLACK_S * 1e9
        # The stored wall time is the machine's clock at each start.
        assert runs["ahead"].begun_wall_s == pytest.approx(begun_s, abs=SLACK_S)
        assert runs["back"].begun_wall_s == pytest.approx(begun_s + HOUR_S, abs=SLACK_S)
        assert runs["after"].begun_wall_s == pytest.approx(begun_s - HOUR_S, abs=SLACK_S)
        # A wall time in each window is converted to the window's monotonic time.
        for name in ("ahead", "back", "after"):
            boot_id, at_ns = reader.to_monotonic(runs[name].begun_wall_s + 0.2)
            assert boot_id == runs[name].boot_id
            assert at_ns == pytest.approx(runs[name].begin_ns, abs=SLACK_S * 1e9), name
    assert audited(live, "30min") == {"ahead", "back"}  # the window that started with the clock an hour behind is older
    assert audited(live, "2h") == {"ahead", "after", "back"}
    assert "ERROR" not in live.log.read_text()


def is_read_since(live: Live, at_ns: int) -> bool:
    """Return True if every GPU has a stored reading after this time."""
    return min(committed_ns(live.settings.state).values(), default=0) > at_ns


def audited(live: Live, since: str) -> set[str]:
    """Return the labels of the windows that `gpuwatch audit --since` lists."""
    command = [sys.executable, "-m", "gpuwatch", *live.settings.flags(), "audit", "--since", since, "--json"]
    done = forked.run(command, timeout_s=PATIENCE_S)
    assert not done.stderr or "gpuwatch show" in done.stderr, done.stderr
    return {window["label"] for window in json.loads(done.stdout)["runs"]}


def test_suspension_flags_the_window_and_is_an_event(set_clocks: tuple[Live, SetClocks]) -> None:
    """A suspension is a flagged clock step in the verdict, a line in the log, and an event in the store."""
    live, clocks = set_clocks
    with gpuwatch.window("over a suspension", settings=live.settings, policy=BUSY_MACHINE) as w:
        sample_for(0.6)
        clocks.set(wall_s=600.0, boot_s=600.0)
        sample_for(0.6)
    stood_still = w.verdict.finding("clock-source-step")
    assert stood_still.answered == "found"
    assert stood_still.severity == "flag"
    assert w.verdict.status in (Status.FLAGGED, Status.REJECTED)
    assert "suspended for 600.0 s" in live.log.read_text()
    with Reader(live.settings.state) as reader:
        (run,) = reader.runs()
        events = reader.trace(run.uuids[0], run.boot_id, run.begin_ns, run.end_ns or 0).events
    assert [(event.kind, event.text) for event in events] == [("suspended", "the machine was suspended for 600.0 s")]


def test_suspension_just_before_the_end_is_in_the_evidence(set_clocks: tuple[Live, SetClocks]) -> None:
    live, clocks = set_clocks
    with gpuwatch.window("woken to end", settings=live.settings, policy=BUSY_MACHINE) as w:
        sample_for(1.0)
        clocks.set(wall_s=600.0, boot_s=600.0)
    assert "suspended" not in w.verdict.why
    with Reader(live.settings.state) as reader:
        (run,) = reader.runs()
        trace = reader.evidence(run, run.uuids[0]).trace
    assert trace.gaps, "the suspension is a gap"


class TestSleeps:
    def test_sleeps_finds_a_sleep_between_two_looks_once(self) -> None:
        now_s, slept_s = 100.0, 0.0
        sleeps = suspend.Sleeps(lambda: round(now_s * 1e9), lambda: round(slept_s * 1e9))
        now_s = 100.2
        assert sleeps.look() is None
        now_s, slept_s = 100.4, 30.0
        found = sleeps.look()
        assert found is not None
        assert found.slept_s == 30.0
        assert (found.begin_ns, found.end_ns) == (100_100_000_000, 100_400_000_000)
        now_s = 100.6
        assert sleeps.look() is None

    def test_sleeps_ignores_a_small_offset_between_clock_reads(self) -> None:
        offsets = iter((0, 50_000_000, 0))
        sleeps = suspend.Sleeps(lambda: 0, lambda: next(offsets))
        assert sleeps.look() is None
        assert sleeps.look() is None
