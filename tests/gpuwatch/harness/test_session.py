"""Tests of a process's harness session."""

from __future__ import annotations

import logging
import os

import pytest

import gpuwatch
from gpuwatch.harness import quiet_log, session
from gpuwatch.harness.harness_times import HarnessTimes, spread_begins
from gpuwatch.harness.harness_window import HarnessWindow
from gpuwatch.harness.tuning import Tuning
from gpuwatch.wire.packed_times import PackedTimes


def closed(face: str, label: str) -> HarnessWindow:
    window = session.open_window(face, label)
    assert window is not None
    window.make_marks()
    window.begin()
    window.begin_round()
    window.end_round()
    window.take_times([1e-4])
    window.finish()
    return window


def test_session_summary_has_one_line_per_cause(fresh: session.HarnessSession) -> None:
    for number in range(3):
        closed("a harness", f"number {number}")
    lines = session.summarize(fresh)
    assert lines[0].startswith("SIMULATED a harness: 3 windows: ")
    causes = [line.split(":")[0].split("  ")[-1] for line in lines[1:]]
    assert len(causes) == len(set(causes)) > 0
    assert session.summarize(fresh) == [], "a second summary does not repeat the first"


def test_session_attaches_the_status_when_judged(fresh: session.HarnessSession) -> None:
    window = closed("a harness", "work")
    assert window.attached["status"] is None
    assert isinstance(window.attached["run"], str)
    fresh.judge()
    assert window.attached["status"] == window.verdict.status.value


def test_session_opens_no_window_with_gpuwatch_off(fresh: session.HarnessSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("off", "OFF", "0", "no"):
        monkeypatch.setenv("GPUWATCH", word)
        assert session.open_window("a harness", "work") is None
    monkeypatch.setenv("GPUWATCH", "on")
    assert session.open_window("a harness", "work") is not None


def test_session_limits_the_windows_of_a_process(fresh: session.HarnessSession) -> None:
    for _ in range(502):
        session.open_window("a harness", "work")
    assert len(fresh.windows) == 500
    assert "2 × a harness: no window, because this process has opened 500" in session.summarize(fresh)


def test_forked_child_has_its_own_session(fresh: session.HarnessSession) -> None:
    session.open_window("a harness", "work")
    fresh.pid = os.getpid() - 1
    assert session.current_session().windows == []


def test_tuning_opens_one_window_and_counts_trials(fresh: session.HarnessSession) -> None:
    tuning = Tuning("a tuner", "kernel")
    for _ in range(40):
        with tuning.trial():
            assert session.open_window("a harness", "inside") is None
    tuning.finish()
    tuning.finish()
    assert [window.label for window in fresh.windows] == ["autotune kernel"]
    assert fresh.windows[0].attached["trials_count"] == 40
    assert "a tuner: autotune kernel: 40 trials in one window" in session.summarize(fresh)


def test_quietly_catches_and_counts_failures(fresh: session.HarnessSession, caplog: pytest.LogCaptureFixture) -> None:
    """Exceptions and gpuwatch's warnings inside the block become lines with counts; messages outside are logged."""
    log = logging.getLogger("gpuwatch")
    for _ in range(3):
        with quiet_log.quietly("reading"):
            log.warning("gpuwatch: %s", "no answer")
            raise ValueError("nonsense")
    log.warning("gpuwatch: from the program's own window")
    assert [record.getMessage() for record in caplog.records] == ["gpuwatch: from the program's own window"]
    assert session.summarize(fresh) == ["3 × no answer", "3 × reading failed: ValueError: nonsense"]


def test_harness_window_without_a_daemon_is_unproven(fresh: session.HarnessSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows without a daemon are unproven, and the summary has the reason once."""
    monkeypatch.setenv("GPUWATCH_SOCKET", "/proc/nowhere/s")
    monkeypatch.setenv("GPUWATCH_STATE", "/proc/nowhere")
    windows = [closed("a harness", "work") for _ in range(2)]
    lines = session.summarize(fresh)
    assert [window.attached["status"] for window in windows] == ["unproven", "unproven"]
    assert lines[0] == "a harness: 2 windows: 2 unproven; gpuwatch show"
    assert len([line for line in lines if line.startswith("  2 of 2  unproven: ")]) == 1


def test_harness_window_label_is_cut_to_200_characters(fresh: session.HarnessSession) -> None:
    window = session.open_window("a harness", "x" * 5000)
    assert window is not None
    assert window.label == "x" * 200


def test_spread_begins_has_equal_pauses() -> None:
    assert spread_begins(1000, 2000, [1e-7, 3e-7]).tolist() == [1300, 1700]
    assert spread_begins(1000, 900, [1e-7]).tolist() == [1000], "calls longer than the interval start at once"


def test_harness_times_use_the_last_marks() -> None:
    """The last marks give start times and clocks; with too few marks the harness's start times count."""
    gaps: list[tuple[str, int, int]] = []
    times = HarnessTimes([2e-6, 4e-6], [7, 8], 2)
    times.note_gaps(lambda *gap: gaps.append(gap), "flush", 5_000)
    marks = HarnessTimes([1.0, 1.0, 1.0], [1_000, 11_000, 21_000]).replace(None)
    assert isinstance(marks, PackedTimes)
    found = times.replace(PackedTimes(marks.at_ns, marks.took_s, b"abcdefghijkl", 1))
    assert isinstance(found, PackedTimes)
    unpacked = found.unpacked()
    assert (unpacked.at_ns.tolist(), unpacked.took_s.tolist(), found.calls_count) == ([11_000, 21_000], [1e-6, 2e-6], 2)
    assert found.sm_clock_mhz == b"efghijkl"
    assert gaps == [("warm-up", 5_000, 11_000), ("flush", 13_000, 21_000)]
    few = times.replace(PackedTimes(marks.at_ns[:8], marks.took_s[:8], None, 1))
    assert isinstance(few, PackedTimes)
    assert few.unpacked().at_ns.tolist() == [7, 8]


def test_do_bench_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    with pytest.raises(gpuwatch.UsageError, match="expected Triton to be installed"):
        gpuwatch.do_bench(lambda: None)
