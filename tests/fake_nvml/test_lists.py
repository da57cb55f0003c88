"""Tests of the number of driver calls per list, which the mock driver counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_nvml.running import output_of
from tests.fake_nvml.scene import Client, Scene
from tests.waiting import let_pass

LISTS = tuple(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "MPSCompute", "Graphics"))
RECORDS = ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples")
TIMES = 3


@pytest.mark.parametrize(("count", "more"), [(0, 0), (1, 0), (64, 0), (65, 1), (512, 1)])
def test_list_outgrowing_its_buffer_takes_another_call(scene: Scene, library: Path, count: int, more: int) -> None:
    """Reading a list takes one call; the first list beyond the buffer takes one more."""
    gpu = scene.gpus[2]
    gpu.clients = [Client(pid=100_000 + number, memory_bytes=number << 20, graphics=True, mps=True) for number in range(count)]
    found = output_of(scene, library, "lists", str(gpu.index), str(TIMES))
    assert found["processes"] == [[each.pid, each.memory_bytes, True, False] for each in gpu.clients]
    assert found["visibility"] != "unknown"
    assert [gpu.calls_count(function) for function in LISTS] == [TIMES + more] * 3
    assert [gpu.calls_count(function) for function in RECORDS] == [TIMES] * 2


def test_long_utilisation_takes_one_more_call(scene: Scene, library: Path) -> None:
    """A utilisation record beyond the buffer takes one more call; the first reading lists no processes."""
    gpu = scene.gpus[0]
    gpu.clients = [Client(pid=100_000 + number, sm_percent=1, hidden=True, memory_bytes=0) for number in range(512)]
    found = output_of(scene, library, "lists", "0", "1")
    assert found["processes"] == [], "the first reading only sets the cursor"
    assert gpu.calls_count("nvmlDeviceGetProcessUtilization") == 2


def test_power_record_is_read_completely_in_one_call(scene: Scene, library: Path) -> None:
    scene.gpus[0].set(power_mw=321_000)
    let_pass(0.1, "the record starts with the driver, and has a sample every 20 ms")
    found = output_of(scene, library, "lists", "0", "1")
    assert len(found["sampled_w"]) >= 2
    assert found["sampled_w"][-1] == 321.0
    assert scene.gpus[0].calls_count("nvmlDeviceGetSamples") == 1
