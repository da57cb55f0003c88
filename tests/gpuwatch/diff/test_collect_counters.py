"""Tests of counters (ncu, else GPM in turns, else none, with the source reported before the run) and of explained pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.evidence import Device, Lane, Reading
from gpuwatch.diff.explained_pair import ExplainedPair, explain_timed
from gpuwatch.diff.kernel_counters import Counters
from gpuwatch.diff.read_counters import Asked, CounterPermission, SideName, collect, has_gpm
from gpuwatch.diff.timed_pair import TimedPair
from gpuwatch.diff.timing_process import TimingProcess
from gpuwatch.errors import SourceGoneError, UsageError
from gpuwatch.measuring import canary_record
from gpuwatch.sources.replay import Replay
from tests.gpuwatch.diff.test_ncu_process import RAW, program
from tests.gpuwatch.diff.timed_builders import H200, counters, static, timed

FORBIDDEN = CounterPermission("/usr/bin/ncu", "RmProfilingAdminOnly is 1")


class Running(TimingProcess):
    """A pair whose sides keep the memory busy for a share of the time; ``done`` lists the runs."""

    def __init__(self, device: Device = H200, *, b_ratio: float = 0.7) -> None:
        self._device, self.ratios = device, {"a": 0.2, "b": b_ratio}
        self.done: list[tuple[str, float]] = []

    def run_alone(self, side: SideName, seconds: float) -> None:
        self.done.append((side, seconds))

    def once_command(self, side: SideName) -> Sequence[str]:
        return ["true", side]


class Driver:
    """A mock driver with GPM.  Only a read after a run of 1 s has the side's ratio, and only with ``has_answer``."""

    name, simulated = "nvml", False

    def __init__(self, running: Running, *, has_answer: bool = True) -> None:
        self.running, self.has_answer, self.is_closed = running, has_answer, False

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        side, seconds = self.running.done[-1]
        is_mean = self.has_answer and seconds == 1.0
        ratio = self.running.ratios[side] if is_mean else None
        return Reading(uuid=uuid, lane=lane, at_ns=0, took_ns=0, dram_activity_ratio=ratio, sm_occupancy_ratio=ratio)

    def close(self) -> None:
        self.is_closed = True


def collected(
    running: Running, permission: CounterPermission = FORBIDDEN, asked: Asked = "auto", *, has_answer: bool = True
) -> tuple[Counters, list[str]]:
    said: list[str] = []
    driver = Driver(running, has_answer=has_answer)
    return collect(running, permission, asked, lambda: driver, said.append), said  # type: ignore[arg-type, return-value]


def test_gpm_is_read_while_each_side_runs_alone() -> None:
    """Each side runs in turn after a lead-in, because the driver's samples are old."""
    running = Running()
    found, said = collected(running)
    assert said == ["counters: GPM, while each kernel runs alone; RmProfilingAdminOnly is 1"]
    assert (found.source, found.a, found.b) == (
        "GPM",
        {"dram_activity_ratio": (0.2,) * 3, "occupancy_ratio": (0.2,) * 3},
        {"dram_activity_ratio": (0.7,) * 3, "occupancy_ratio": (0.7,) * 3},
    )
    assert running.done == [("a", 0.4), ("a", 1.0), ("b", 0.4), ("b", 1.0)] * 3


def test_older_gpu_has_no_counters_and_a_reason() -> None:
    ampere = replace(H200, compute_capability="8.0")
    assert not has_gpm(ampere)
    found, said = collected(Running(ampere))
    assert found.source == "none"
    assert said == [f"counters: {found.says}"]
    assert found.says == "none: RmProfilingAdminOnly is 1; GPM needs a Hopper GPU or newer and NVIDIA's driver"


def test_gpm_without_a_reading_gives_no_counters() -> None:
    assert collected(Running(), has_answer=False)[0].says.endswith("GPM gave no reading")
    with pytest.raises(UsageError, match=r"--counters require: .*GPM gave no reading"):
        collected(Running(), asked="require", has_answer=False)


def test_lost_driver_gives_no_counters() -> None:
    def fail() -> Replay:
        raise SourceGoneError("the driver is not loaded")

    found = collect(Running(), FORBIDDEN, "auto", fail, lambda _words: None)
    assert "the driver is not loaded" in found.says


def test_disabled_counters_are_not_reported() -> None:
    found, said = collected(Running(), asked="off")
    assert (found.source, said) == ("none", [])


def test_ncu_runs_once_per_side(tmp_path: Path) -> None:
    (tmp_path / "said.csv").write_text(RAW)
    ncu = program(tmp_path, f'echo "$@" >> {tmp_path}/words; cp {tmp_path}/said.csv "$log"')
    found, said = collected(Running(), CounterPermission(ncu, ""))
    assert found.source == "ncu"
    assert found.mean("b", "dram_bytes") == 10161888.0
    assert (tmp_path / "words").read_text() == "true a\ntrue b\n"
    assert said == [f"counters: {ncu}, --clock-control none, --cache-control all"]


def test_failed_ncu_is_replaced_by_gpm(tmp_path: Path) -> None:
    ncu = program(tmp_path, 'echo "==ERROR== ERR_NVGPUCTRPERM - no permission" > "$log"')
    found, said = collected(Running(), CounterPermission(ncu, ""))
    assert found.source == "GPM"
    assert said[1] == "counters: GPM, while each kernel runs alone; ncu: ERR_NVGPUCTRPERM - no permission"
    with pytest.raises(UsageError, match="--counters ncu: ncu: ERR_NVGPUCTRPERM"):
        collected(Running(), CounterPermission(ncu, ""), asked="ncu")


def test_interval_with_zero_marks_a_difference() -> None:
    found = counters("GPM", l2_hit_ratio=((0.5, 0.52, 0.51), (0.6, 0.61, 0.6)), l1_hit_ratio=((0.5, 0.9, 0.2), (0.6, 0.6, 0.6)))
    assert not found.is_uncertain("l2_hit_ratio")
    assert found.is_uncertain("l1_hit_ratio")
    assert not counters("ncu", l2_hit_ratio=((0.5,), (0.5001,))).is_uncertain("l2_hit_ratio")  # one launch has no interval


def explained(pair: TimedPair, running: TimingProcess, tmp_path: Path) -> ExplainedPair:
    ncu = program(tmp_path, f'cp {tmp_path}/said.csv "$log"')
    (tmp_path / "said.csv").write_text(RAW)
    permission = CounterPermission(ncu, "")
    return explain_timed(pair, running, static(), permission=permission, asked="auto", state=tmp_path, say=lambda _words: None)


def test_timed_pair_is_explained_by_counters_and_peaks(tmp_path: Path) -> None:
    """A timed pair has ncu's counters; the canary's record in the state folder gives the measured peak."""
    canary_record.store(tmp_path, H200.uuid, clock_mhz=1980.0, copy_bytes_count=4e12)
    found = explained(timed(), Running(), tmp_path)
    assert found.counters.source == "ncu"
    assert found.peaks is not None
    assert found.peaks.measured_bytes == 4e12
    assert found.a is not None
    assert found.a.traffic_bytes == 10161888.0


def test_untimed_pair_does_not_run_again(tmp_path: Path) -> None:
    running = Running()
    found = explained(timed("INCOMPARABLE", None, reason="B writes outside of y"), running, tmp_path)
    assert (found.counters.says, found.peaks, running.done) == ("none: nothing was timed", None, [])


def test_undescribed_gpu_has_times_without_counters(tmp_path: Path) -> None:
    class Undescribed(Running):
        @property
        def device(self) -> Device:
            raise SourceGoneError("the driver does not describe this GPU")

        @device.setter
        def device(self, _device: Device) -> None: ...

    found = explained(timed(), Undescribed(), tmp_path)
    assert (found.counters.source, found.a) == ("none", None)
    assert found.to_dict()["gpu"] is None
