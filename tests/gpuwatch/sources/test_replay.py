"""Tests that a replay returns the recorded values at their times."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from annotate.capsule.pack import pack
from annotate.evidence import Lane, Ownership, signals
from gpuwatch.clock import VirtualClock
from gpuwatch.errors import DeviceLostError, SourceGoneError, UsageError
from gpuwatch.sources import recordings
from gpuwatch.sources.replay import ENDED, Replay
from gpuwatch.sources.simulated import simulate
from tests.gpuwatch.sources.logs import TRACES, log_of

NEVER = threading.Event()
FAST = signals(Lane.FAST)


def log(folder: Path, rows: int = 100) -> Path:
    path = folder / "log.csv"
    path.write_text(log_of(rows=rows))
    return path


def after(clock: VirtualClock, seconds: float) -> None:
    clock.wait_until(clock.now_ns() + round(seconds * 1e9), NEVER)


def test_replay_starts_with_the_first_reading(tmp_path: Path) -> None:
    source = Replay(log(tmp_path), VirtualClock())
    reading = source.read(source.devices()[0].uuid, Lane.FAST, FAST)
    assert (reading.sm_clock_mhz, reading.power_average_w) == (1455, 691.0)


@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 1.0), (2.0, 0.5), (100.0, 0.01)])
def test_replay_runs_at_its_speed(tmp_path: Path, speed: float, seconds: float) -> None:
    clock = VirtualClock()
    source = Replay(log(tmp_path), clock, speed=speed)
    after(clock, seconds + 0.001 / speed)
    assert source.read(source.devices()[0].uuid, Lane.FAST, FAST).power_average_w == 691.50


def test_replay_loses_the_gpu_at_the_end(tmp_path: Path) -> None:
    """After the end of the recording the GPU is lost, with the end as the reason, and no device is listed."""
    clock = VirtualClock()
    source = Replay(log(tmp_path), clock)
    uuid = source.devices()[0].uuid
    after(clock, 2.5)
    with pytest.raises(DeviceLostError) as caught:
        source.read(uuid, Lane.FAST, FAST)
    assert caught.value.reason == ENDED
    assert source.devices() == ()


def test_replay_returns_the_archive_readings() -> None:
    """At a recorded time, the replay returns the clock recorded then."""
    clock = VirtualClock()
    (whole,) = recordings.whole(TRACES / "scenarios.npz")
    source = Replay(TRACES / "scenarios.npz", clock)
    uuid = source.devices()[0].uuid
    start_ns = clock.now_ns()
    column = whole.trace.column("sm_clock_mhz")
    for row in range(0, len(column), 97):
        clock.wait_until(start_ns + int(column.at_ns[row] - whole.window.begin_ns), NEVER)
        assert source.read(uuid, Lane.FAST, ("sm_clock_mhz",)).sm_clock_mhz == column.values[row]


def test_replay_absent_signals_are_unobserved(tmp_path: Path) -> None:
    """Signals, processes and power samples that the recording lacks stay None or empty."""
    source = Replay(log(tmp_path), VirtualClock())
    uuid = source.devices()[0].uuid
    assert source.read(uuid, Lane.SLOW, ("energy_j",)).energy_j is None
    assert source.read_process_list(uuid).processes == ()
    assert source.power_record(uuid).sample_at_ns == ()


def test_replay_does_not_fill_a_gap(tmp_path: Path) -> None:
    """A gap of the recording is not filled with the last value."""
    path, clock = tmp_path / "lost", VirtualClock()
    path.write_bytes(pack(simulate("gpu-lost"), decimate=False))
    source = Replay(path, clock)
    uuid = source.devices()[0].uuid
    after(clock, 4.5)
    assert source.read(uuid, Lane.FAST, FAST).sm_clock_mhz is not None
    after(clock, 1.5)  # lost from second 5 to 7
    assert source.read(uuid, Lane.FAST, FAST).sm_clock_mhz is None
    after(clock, 1.5)
    assert source.read(uuid, Lane.FAST, FAST).sm_clock_mhz is not None


def test_replay_returns_events_and_processes(tmp_path: Path) -> None:
    """An event arrives at its recorded time, and processes have unknown ownership."""
    path, clock = tmp_path / "ecc", VirtualClock()
    path.write_bytes(pack(simulate("ecc-error,neighbour")))
    source = Replay(path, clock)
    start_ns = clock.now_ns()
    (event,) = source.events(60.0)
    assert (event.kind, event.value) == ("xid", 48)
    assert event.at_ns - start_ns == pytest.approx(5.5e9, abs=5e7)
    processes = source.read_process_list(source.devices()[1].uuid, utilization=True).processes
    assert [process.utilization_ratio for process in processes] == [0.46, 0.54]
    assert {process.ownership for process in processes} == {Ownership.UNKNOWN}


def test_replay_of_a_simulation_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "simulated"
    path.write_bytes(pack(simulate("steady-copy")))
    assert Replay(path, VirtualClock()).simulated
    assert not Replay(TRACES / "scenarios.npz", VirtualClock()).simulated


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_replay_rejects_an_invalid_speed(tmp_path: Path, speed: float) -> None:
    with pytest.raises(UsageError, match="speed"):
        Replay(log(tmp_path), VirtualClock(), speed=speed)


def test_replay_read_after_close_raises_source_gone(tmp_path: Path) -> None:
    source = Replay(log(tmp_path), VirtualClock())
    source.close()
    with pytest.raises(SourceGoneError):
        source.devices()
