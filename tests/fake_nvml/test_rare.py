"""Tests of rare readings with NVIDIA's binding: P-state, row remaps by cause, PCIe, NVLink, and 56 MIG instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvml.running import output_of
from tests.fake_nvml.scene import Client, Scene, create

GIB = 1 << 30
PROFILES = ("1g.18gb",) * 7


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Return eight boards with seven instances each; the first has a bad link, the second no NVLink, the last no GPM."""
    made = create(tmp_path_factory.mktemp("rare") / "scene")
    for gpu in made.gpus:
        gpu.partition(*PROFILES)
    made.gpus[0].set(
        performance_state=2, remapped_corrected_count=3, remapped_uncorrected_count=1, nvlink_active_count=17,
        nvlink_sent_kib=5, nvlink_received_kib=7, nvlink_crc_flit_count=11, nvlink_crc_data_count=12, nvlink_replay_count=13,
        nvlink_recovery_count=14, pcie_sent_kib=2048, pcie_received_kib=4096,
    )  # fmt: skip
    made.gpus[0].clients = [Client(pid=11, instance_id=8, compute_id=0), Client(pid=12, instance_id=8, compute_id=0)]
    made.gpus[0].set_instance(1, memory_used_bytes=3 * GIB, sm_activity_percent=80, dram_activity_percent=25)
    made.gpus[1].set(nvlink_links_count=0, performance_state=32)
    made.gpus[1].deny_field(38)
    made.gpus[7].set(gpm_support=0)
    return made


@pytest.fixture(scope="module")
def rounds(scene: Scene, library: Path) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = output_of(scene, library, "rare")
    return found


def test_rare_reading_holds_the_scenes_values(rounds: list[list[dict[str, Any]]]) -> None:
    first, second = (boards[0] for boards in rounds)
    assert first["performance_state"] == 2
    assert (first["remapped_corrected_count"], first["remapped_uncorrected_count"]) == (3, 1)
    assert (first["nvlink_active_count"], first["nvlink_inactive_count"]) == (17, 1)
    assert (first["nvlink_sent_bytes"], first["nvlink_received_bytes"]) == (5 * 1024, 7 * 1024)
    assert first["nvlink_errors_count"] == {"crc_flit": 11, "crc_data": 12, "replay": 13, "recovery": 14}
    assert first["pcie_sent_bytes"] is None, "a mean needs two samples"
    most_s = (second["at_ns"] - first["at_ns"] + first["took_ns"]) / 1e9
    assert 0.1 <= second["pcie_sent_bytes"] / (2 << 20) <= most_s, "2 MiB a second, from one sample to the next"
    assert second["pcie_received_bytes"] == pytest.approx(2 * second["pcie_sent_bytes"], abs=1)


def test_missing_nvlink_and_gpm_values_are_none(rounds: list[list[dict[str, Any]]]) -> None:
    _, unlinked, *_, unmonitored = rounds[1]
    assert unlinked["nvlink_active_count"] is unlinked["nvlink_sent_bytes"] is unlinked["performance_state"] is None
    assert unlinked["nvlink_errors_count"] == {}
    assert unmonitored["pcie_sent_bytes"] is None
    assert unmonitored["nvlink_active_count"] == 18


def test_every_mig_instance_is_read_separately(scene: Scene, rounds: list[list[dict[str, Any]]]) -> None:
    every = [instance for board in rounds[1] for instance in board["instances"]]
    assert len({instance["uuid"] for instance in every}) == 56
    first, busy, *_ = rounds[1][0]["instances"]
    assert busy["name"] == "NVIDIA H200 MIG 1g.18gb"
    assert (busy["gpu_instance_id"], busy["compute_instance_id"]) == (8, 0)
    assert (busy["memory_used_bytes"], busy["memory_total_bytes"]) == (3 * GIB, 18 * GIB)
    assert (busy["processes_count"], first["processes_count"]) == (2, 0)
    assert (busy["sm_activity_ratio"], busy["dram_activity_ratio"]) == (0.8, 0.25)
    assert first["sm_activity_ratio"] == 0


def test_removed_mig_instances_are_not_read(scene: Scene, library: Path) -> None:
    scene.gpus[3].unpartition()
    boards = output_of(scene, library, "rare")[1]
    assert [len(board["instances"]) for board in boards] == [7, 7, 7, 0, 7, 7, 7, 7]
