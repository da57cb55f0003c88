"""Tests of a process's session: counted and watched windows, quiet failures, one line per cause."""

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


def test_summary_says_each_cause_once(fresh: session.HarnessSession) -> None:
    for number in range(3):
        closed("a harness", f"number {number}")
    lines = session.summarize(fresh)
    assert lines[0].startswith("SIMULATED a harness: 3 windows: ")
    causes = [line.split(":")[0].split("  ")[-1] for line in lines[1:]]
    assert len(causes) == len(set(causes)) > 0
    assert session.summarize(fresh) == [], "what was said is not said again"


def test_results_are_attached_when_judged(fresh: session.HarnessSession) -> None:
    window = closed("a harness", "work")
    assert window.attached["status"] is None
    assert isinstance(window.attached["run"], str)
    fresh.judge()
    assert window.attached["status"] == window.verdict.status.value


def test_gpuwatch_off_leaves_harnesses_alone(fresh: session.HarnessSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("off", "OFF", "0", "no"):
        monkeypatch.setenv("GPUWATCH", word)
        assert session.open_window("a harness", "work") is None
    monkeypatch.setenv("GPUWATCH", "on")
    assert session.open_window("a harness", "work") is not None


def test_windows_of_a_process_are_bounded(fresh: session.HarnessSession) -> None:
    for _ in range(502):
        session.open_window("a harness", "work")
    assert len(fresh.windows) == 500
    assert "2 × a harness: no window, because this process has had 500" in session.summarize(fresh)


def test_forked_child_has_its_own_session(fresh: session.HarnessSession) -> None:
    session.open_window("a harness", "work")
    fresh.pid = os.getpid() - 1
    assert session.current_session().windows == []


def test_tuner_opens_one_window_and_counts(fresh: session.HarnessSession) -> None:
    tuning = Tuning("a tuner", "kernel")
    for _ in range(40):
        with tuning.trial():
            assert session.open_window("a harness", "inside") is None
    tuning.finish()
    tuning.finish()
    assert [window.label for window in fresh.windows] == ["autotune kernel"]
    assert fresh.windows[0].attached["trials_count"] == 40
    assert "a tuner: autotune kernel: 40 trials in one window" in session.summarize(fresh)


def test_failures_stay_inside_and_are_counted(fresh: session.HarnessSession, caplog: pytest.LogCaptureFixture) -> None:
    """Telemetry's exceptions and logs become one line with a count at the end; other loggers are unaffected."""
    log = logging.getLogger("gpuwatch")
    for _ in range(3):
        with quiet_log.quietly("reading"):
            log.warning("gpuwatch: %s", "no answer")
            raise ValueError("nonsense")
    log.warning("gpuwatch: of a window of the program's own")
    assert [record.getMessage() for record in caplog.records] == ["gpuwatch: of a window of the program's own"]
    assert session.summarize(fresh) == ["3 × no answer", "3 × reading failed: ValueError: nonsense"]


def test_window_without_a_daemon_harms_nothing(fresh: session.HarnessSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window without a daemon is unproven with the reason, printed once for all windows."""
    monkeypatch.setenv("GPUWATCH_SOCKET", "/proc/nowhere/s")
    monkeypatch.setenv("GPUWATCH_STATE", "/proc/nowhere")
    windows = [closed("a harness", "work") for _ in range(2)]
    lines = session.summarize(fresh)
    assert [window.attached["status"] for window in windows] == ["unproven", "unproven"]
    assert lines[0] == "a harness: 2 windows: 2 unproven; gpuwatch show"
    assert len([line for line in lines if line.startswith("  2 of 2  unproven: ")]) == 1


def test_label_of_any_length_is_cut(fresh: session.HarnessSession) -> None:
    window = session.open_window("a harness", "x" * 5000)
    assert window is not None
    assert window.label == "x" * 200


def test_begins_are_spread_evenly() -> None:
    """The time outside the calls lies between them in equal parts."""
    assert spread_begins(1000, 2000, [1e-7, 3e-7]).tolist() == [1300, 1700]
    assert spread_begins(1000, 900, [1e-7]).tolist() == [1000], "times that do not fit begin at once"


def test_times_take_begins_and_clocks_of_marks() -> None:
    """The last marks belong to the times; gaps between entries are declared; with too few marks the harness's begins count."""
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
