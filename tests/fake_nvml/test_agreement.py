"""Tests that other NVML readers run on the mock driver unmodified, and read the same values as gpuwatch."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvml.running import output_of
from tests.fake_nvml.scene import Client, Scene, create

pytestmark = pytest.mark.usefixtures("contract")  # started early, because the contract mostly waits
GIB = 1 << 30


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Yield a scene of eight different GPUs, each with up to three running processes."""
    scene = create(tmp_path_factory.mktemp("busy") / "scene")
    programs = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    for gpu in scene.gpus:
        number = gpu.index
        gpu.set(
            sm_clock_mhz=1980 - 15 * number, mem_clock_mhz=3201 - number, power_mw=700_000 - 7_000 * number,
            power_average_mw=680_000 - 9_000 * number, temperature_c=40 + number, utilization_percent=100 - 3 * number,
            mem_utilization_percent=20 + number, power_limit_mw=700_000 - 10_000 * number,
        )  # fmt: skip
        gpu.clients = [
            Client(pid=program.pid, memory_bytes=(1 + number + place) * GIB, sm_percent=10)
            for place, program in enumerate(programs[: number % 4])
        ]
    yield scene
    for program in programs:
        program.kill()
        program.wait()


@pytest.fixture(scope="module")
def ours(busy: Scene, library: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = output_of(busy, library, "readers", "gpuwatch")
    return found


def test_nvml_source_reads_the_scenes_values(busy: Scene, ours: list[dict[str, Any]]) -> None:
    assert [gpu["uuid"] for gpu in ours] == [gpu.uuid for gpu in busy.gpus]
    for gpu, found in zip(busy.gpus, ours, strict=True):
        assert found == {
            "uuid": gpu.uuid, "name": "NVIDIA H200", "sm_clock_mhz": gpu.now("sm_clock_mhz"),
            "mem_clock_mhz": gpu.now("mem_clock_mhz"), "power_w": pytest.approx(gpu.now("power_average_mw") / 1000),
            "power_limit_w": gpu.now("power_limit_mw") / 1000, "temperature_c": gpu.now("temperature_c"),
            "utilization_percent": gpu.now("utilization_percent"),
            "mem_utilization_percent": gpu.now("mem_utilization_percent"),
            "memory_used_bytes": gpu.now("memory_used_bytes"), "memory_total_bytes": gpu.now("memory_total_bytes"),
            "processes": sorted([client.pid, client.memory_bytes] for client in gpu.clients),
        }  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "values_count", "watts", "bytes_apart"),
    [
        ("nvitop", 12, 0.001, 0),
        ("gpustat", 9, 1.0, 1 << 20),  # whole watts and mebibytes
    ],
)
def test_other_reader_agrees_with_gpuwatch(
    busy: Scene, library: Path, ours: list[dict[str, Any]], reader: str, values_count: int, watts: float, bytes_apart: int
) -> None:
    theirs = output_of(busy, library, "readers", reader)
    assert len(theirs) == len(ours) == 8
    for their, our in zip(theirs, ours, strict=True):
        assert len(their) == values_count
        for name, value in their.items():
            if name.endswith("_w"):
                assert value == pytest.approx(our[name], abs=watts), name
            elif name.endswith("_bytes"):
                assert value == pytest.approx(our[name], abs=bytes_apart), name
            else:
                assert value == our[name], name
