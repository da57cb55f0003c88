"""Tests of windows around torch's Timer and inductor's benchmarks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.config.settings import Settings
from gpuwatch.harness.torch_timer import EXTENDED_S, patch_timer
from tests.gpuwatch.harness.real_packages import environment, evidence_of, folder, read_json, run_python

# Importing torch makes many objects that stay in use: collections take a fifth of the import's CPU time.
PROGRAM = "import gc, runpy; gc.disable(); runpy.run_path('tests/gpuwatch/harness/torch_program.py', run_name='__main__')"


def test_real_torch_is_watched(copying: Settings) -> None:
    """One run of ``torch_program.py`` serves all checks, because torch takes seconds to import."""
    found = read_json(run_python("-c", PROGRAM, given=environment(copying, folder("torch"), ".")))
    check_measurements_have_run_and_status(found)
    for name in ("blocked", "adaptive", "single"):
        check_window_has_torchs_times(found, copying, name)
    check_inductor_counts_in_one_window(found)
    assert [each["label"] for each in found["windows"][:3]] == ["add ten", "add ten", "a + 1"]
    assert found["windows"][-1]["label"] == "matmul", "the window of examples/harness/torch_timer.py"
    assert found["failed"] == "division by zero", "torch's own error reaches the caller"
    assert found["tampered"] == [], "gpuwatch replaces no clock, event or synchronisation that the tampering rule checks"


class OldTimer:
    """A mock of torch's Timer, whose ``min_run_time`` may be positional."""

    ran: tuple[object, float]

    def _threaded_measurement_loop(self, number: int, time_hook: object) -> None: ...

    def _timeit(self, number: int) -> None: ...

    def timeit(self, number: int = 1) -> None: ...

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01) -> None: ...

    def blocked_autorange(self, callback: object = None, min_run_time: float = 0.2) -> SimpleNamespace:
        self.ran = callback, min_run_time
        return SimpleNamespace(metadata=None)


@pytest.mark.parametrize(("given", "named"), [((None, 0.5), {}), ((), {"min_run_time": 0.5}), ((), {})])
def test_extended_timer_takes_a_positional_run_time(
    given: tuple[Any, ...], named: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUWATCH_EXTEND", "1")
    patch_timer(SimpleNamespace(Timer=OldTimer))  # type: ignore[arg-type]
    timer = OldTimer()
    timer.blocked_autorange(*given, **named)
    assert timer.ran == (None, EXTENDED_S)


def check_measurements_have_run_and_status(found: Any) -> None:
    runs = [each["run"] for each in found["measured"].values()]
    assert len(set(runs)) == 3
    assert all(found["statuses"])
    assert [each["run"] for each in found["windows"][:3]] == runs


def check_window_has_torchs_times(found: Any, copying: Settings, name: str) -> None:
    """Check that the evidence has each block with the mean time of a call, without the estimate and torch's warm-up."""
    measured = found["measured"][name]
    timings = evidence_of(copying, measured["run"]).timings
    assert timings is not None
    assert timings.calls_count == measured["calls_count"]
    assert timings.took_s.tolist() == pytest.approx([each / timings.calls_count for each in measured["raw_s"]])


def check_inductor_counts_in_one_window(found: Any) -> None:
    """Check that three benchmarks of a compilation, each with two locks, are three trials of one window."""
    tuned = [each for each in found["windows"] if each["face"] == "torch.compile"]
    assert [(each["label"], each["trials_count"]) for each in tuned] == [("autotune 0/0", 3)]
    assert len(found["windows"]) == 5, "three of Timer, one of inductor, one of the example"
    assert "torch.compile: autotune 0/0: 3 trials in one window" in found["report"]
    assert "torch.compile: a benchmark outside a compilation has no window" in found["report"]
