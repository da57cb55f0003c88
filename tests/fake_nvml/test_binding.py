"""Tests of the mock driver with NVIDIA's own binding: values, versions of structures, counts of calls, and faults."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvml import everything
from tests.fake_nvml.build import LIBRARY, older
from tests.fake_nvml.layout import CLASSES, FIELD_SIGNALS, FUNCTIONS
from tests.fake_nvml.running import output_of
from tests.fake_nvml.scene import NOTHING_FILLED, RESET_REQUIRED, Client, Scene
from tests.waiting import let_pass

GIB = 1 << 30
WHOLE = 0xFFFF_FFFF  # no MIG instance


def of(scene: Scene, library: Path, index: int = 0) -> Any:
    return output_of(scene, library, "everything", str(index))["boards"][index]


def test_library_exports_exactly_its_table(library: Path) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library / LIBRARY)], capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in listed.stdout.splitlines()} == set(FUNCTIONS)


def test_binding_reads_every_number_of_a_board(scene: Scene, library: Path) -> None:
    gpu = scene.gpus[3]
    gpu.set(
        sm_clock_mhz=1755, mem_clock_mhz=2619, video_clock_mhz=1500, power_mw=690_123, power_average_mw=654_321,
        temperature_c=71, temperature_margin_c=16, memory_temperature_c=80, event_reasons_mask=0x404,
        utilization_percent=98, mem_utilization_percent=23, energy_mj=12_345_678_901_234, power_cap_ns=9_007_199_254_740,
        sync_boost_ns=7, sw_thermal_ns=269, hw_thermal_ns=270, power_brake_ns=271, power_violation_ns=11,
        thermal_violation_ns=12, sync_boost_violation_ns=13, ecc_corrected_count=5, ecc_uncorrected_count=1,
        remapped_corrected_count=2, remapped_uncorrected_count=3, remap_pending_count=1, remap_failed_count=0,
        pcie_replay_count=4, pcie_generation_count=3, pcie_width_count=8, pcie_sent_kib=1024, pcie_received_kib=2048,
        performance_state=2, nvlink_active_count=17,
        power_limit_mw=650_000, application_clock_mhz=1500, compute_mode=3, persistence_mode=0, fan_percent=40,
        sm_activity_percent=99, sm_occupancy_percent=50, tensor_activity_percent=93.5, dram_activity_percent=17.25,
        memory_used_bytes=20 * GIB, encoder_percent=6, decoder_percent=7,
    )  # fmt: skip
    answers = output_of(scene, library, "everything", "3")
    assert answers["system"] == {"driver": "580.159.04", "nvml": "13.580.159.04", "cuda": 13000}
    assert [board["uuid"] for board in answers["boards"]] == [each.uuid for each in scene.gpus]
    found = answers["boards"][3]
    reserved, total = 644_939_776, 150_754_820_096
    expected = {
        "uuid": gpu.uuid, "name": "NVIDIA H200", "serial": "1650000000003", "vbios": "96.00.AF.00.01", "index": 3,
        "architecture": 9, "capability": [9, 0], "cores": 16_896, "bus_bits": 6_144, "numa": 0, "virtualization": 0,
        "clock_max": [1980, 1980, 3201, 1545], "clock": [1755, 1755, 2619, 1500], "application_clock": 1500,
        "default_application_clock": 1980, "power": 654_321, "power_limit": 650_000, "power_limit_default": 700_000,
        "power_limits": [200_000, 700_000], "temperature": 71, "temperature_v": 71, "thresholds": [92, 87], "margin": 16,
        "reasons": 0x404, "throttle": 0x404, "supported_reasons": 0x1FF, "utilization": {"gpu": 98, "memory": 23},
        "memory": {"total": total, "used": reserved + 20 * GIB, "free": total - reserved - 20 * GIB},
        "memory_v2": {
            "version": 2 << 24 | 40, "total": total, "reserved": reserved, "used": 20 * GIB, "free": total - reserved - 20 * GIB,
        },
        "bar1": {"bar1Total": 256 * GIB, "bar1Free": 256 * GIB - (1 << 20), "bar1Used": 1 << 20},
        "energy": 12_345_678_901_234, "ecc": [5, 1], "remapped": [2, 3, 1, 0], "replays": 4, "pcie": [3, 8], "pcie_max": [5, 16],
        "pcie_flow": [1024, 2048], "pstate": 2, "nvlink": [1] * 17 + [0], "persistence": 0, "ecc_mode": [1, 1], "mig_mode": [0, 0], "compute_mode": 3, "fan": 40,
        "coders": [[6, 167_000], [7, 167_000]], "violation_power": 11, "violation_thermal": 12, "violation_sync_boost": 13,
        "event_types": 0x199F, "gpm_supported": 1, "gpm": [99, 50, 93.5, 17.25, 1, 2], "instances": [],
        "compute": [], "compute_v1": [], "compute_v2": [], "graphics": [], "mps": [], "details": [],
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["pci"]["busId"] == "00000000:1B:00.0"
    assert found["memory_v3"]["error"] == 25, "a version that the library lacks"
    assert found["violation_board"]["error"] == 3
    assert found["nvlink_beyond"]["error"] == 2
    assert answers["after"]["error"] == 1, "a call fails after the shutdown"
    asked = {name for name in everything.ASKED if name not in expected}
    assert asked == {"pci", "memory_v3", "violation_board", "nvlink_beyond", "fields", "samples", "shares"}


def test_fields_have_a_value_or_a_return_code(scene: Scene, library: Path) -> None:
    gpu = scene.gpus[0]
    for number, signal in FIELD_SIGNALS.items():
        gpu.set(**{signal: 1000 + number})
    gpu.deny_field(76)
    gpu.deny_field(82, NOTHING_FILLED)
    before_us = time.time_ns() // 1000
    found = of(scene, library)["fields"]
    for number in FIELD_SIGNALS.keys() - {76, 82}:
        field = found[str(number)]
        assert (field["code"], field["value"]) == (0, 1000 + number)
        assert before_us <= field["stamp_us"] <= time.time_ns() // 1000
        assert field["kind"] == (1 if number in (82, 94, 142, 143, 144, 145, 185, 186) else 3)
    assert (found["76"]["code"], found["251"]["code"]) == (3, 3)
    assert (found["82"]["code"], found["82"]["stamp_us"]) == (0, 0)


def test_number_rises_at_its_rate_at_each_refresh(scene: Scene, library: Path) -> None:
    gpu = scene.gpus[0]
    gpu.moves("energy_mj", 700_000)
    gpu.refreshes("energy_mj", 100)
    let_pass(0.1, "a set value is constant until the next refresh")
    first = of(scene, library)["energy"]
    begin_s = time.monotonic()
    last = of(scene, library)["energy"]
    assert (last - first) % 70_000 in (0, 1, 69_999), "whole refreshes of 100 ms apart"
    assert last > first
    assert gpu.now("energy_mj") - last < 700_000 * (time.monotonic() - begin_s + 0.1)


def test_rippling_number_differs_at_each_refresh(scene: Scene, library: Path) -> None:
    gpu = scene.gpus[0]
    gpu.set(power_mw=600_000)
    gpu.ripples("power_mw", 5_000)
    gpu.refreshes("power_mw", 20)
    let_pass(0.5, "the driver's record fills")
    draws_mw = [draw_mw for _, draw_mw in of(scene, library)["samples"]]
    assert len(draws_mw) > 20
    assert len(set(draws_mw)) > len(draws_mw) * 0.9
    assert all(595_000 <= draw_mw <= 605_000 for draw_mw in draws_mw)


def test_power_record_is_dense_and_bounded(scene: Scene, library: Path) -> None:
    """The samples of the power record are 20 ms apart, end now, and number at most 119."""
    before_us = time.time_ns() // 1000
    stamps_us = [stamp_us for stamp_us, _ in of(scene, library)["samples"]]
    assert {late - early for early, late in itertools.pairwise(stamps_us)} <= {20_000}
    assert before_us - 20_000 <= stamps_us[-1] <= time.time_ns() // 1000
    assert len(stamps_us) <= 119


def test_process_lists_of_every_version_agree(scene: Scene, library: Path) -> None:
    scene.gpus[0].clients = [
        Client(pid=11, memory_bytes=3 * GIB, sm_percent=60),
        Client(pid=12, memory_bytes=GIB, compute=False, graphics=True),
        Client(pid=13, memory_bytes=2 * GIB, mps=True),
        Client(pid=99, hidden=True, memory_bytes=0, sm_percent=30),
    ]
    found = of(scene, library)
    for name in ("compute", "compute_v2", "compute_v1"):
        assert [(entry["pid"], entry["usedGpuMemory"]) for entry in found[name]] == [(11, 3 * GIB), (13, 2 * GIB)], name
    assert [entry["gpuInstanceId"] for entry in found["compute"]] == [WHOLE, WHOLE]
    assert [entry["pid"] for entry in found["graphics"]] == [12]
    assert [entry["pid"] for entry in found["mps"]] == [13]
    assert [(entry["pid"], entry["usedGpuMemory"]) for entry in found["details"]] == [(11, 3 * GIB), (13, 2 * GIB)]
    assert {share["pid"]: share["smUtil"] for share in found["shares"]} == {11: 60, 99: 30}
    assert found["memory_v2"]["used"] == 6 * GIB


def test_process_lists_hold_hundreds_of_processes(scene: Scene, library: Path) -> None:
    scene.gpus[0].clients = [Client(pid=1000 + number, memory_bytes=number << 20) for number in range(512)]
    found = of(scene, library)
    for name in ("compute", "compute_v2", "compute_v1", "details"):
        assert [entry["pid"] for entry in found[name]] == list(range(1000, 1512)), name


def test_mig_instances_have_separate_identity_and_use(scene: Scene, library: Path) -> None:
    first, second = scene.gpus[0].partition("1g.18gb", "2g.35gb")
    scene.gpus[0].clients = [Client(pid=21, instance_id=7, compute_id=0), Client(pid=22, instance_id=8, compute_id=0)]
    found = of(scene, library)
    assert found["mig_mode"] == [1, 1]
    assert [each["uuid"] for each in found["instances"]] == [first, second]
    assert [each["name"] for each in found["instances"]] == ["NVIDIA H200 MIG 1g.18gb", "NVIDIA H200 MIG 2g.35gb"]
    assert [(each["instance"], each["compute"], each["mig"]) for each in found["instances"]] == [(7, 0, 1), (8, 0, 1)]
    assert [each["board"] for each in found["instances"]] == [scene.gpus[0].uuid] * 2
    assert [each["pids"] for each in found["instances"]] == [[21], [22]]
    assert found["instances"][0]["memory"]["total"] == 18 * GIB
    assert [entry["pid"] for entry in found["compute"]] == [21, 22]


def test_calls_are_counted_by_function_and_by_gpu(scene: Scene, library: Path) -> None:
    of(scene, library, 2)
    assert scene.calls_count("nvmlDeviceGetPowerUsage") == 8
    assert [gpu.calls_count("nvmlDeviceGetUtilizationRates") for gpu in scene.gpus] == [0, 0, 1, 0, 0, 0, 0, 0]
    assert scene.calls_count("gpm") == 2 + 1 + 2 + 1 + 2  # allocations, support, samples, metrics, frees
    assert scene.called()["nvmlInitWithFlags"] == 1


def test_call_takes_the_configured_time(scene: Scene, library: Path) -> None:
    scene.cost("processes", 30_000)
    begin_s = time.monotonic()
    of(scene, library)
    assert time.monotonic() - begin_s > 0.03 * scene.calls_count("processes")


@pytest.mark.parametrize("lost_with", [15, RESET_REQUIRED])
def test_lost_gpu_fails_and_the_others_answer(scene: Scene, library: Path, lost_with: int) -> None:
    scene.gpus[1].lose(lost_with)
    boards = output_of(scene, library, "everything")["boards"]
    assert boards[1]["error"] == lost_with
    assert all("uuid" in board for board in boards[:1] + boards[2:])
    scene.gpus[1].vanish()
    assert len(output_of(scene, library, "everything")["boards"]) == 7
    scene.gpus[1].come_back()
    assert len(output_of(scene, library, "everything")["boards"]) == 8


def test_errors_are_set_by_function_gpu_or_number(scene: Scene, library: Path) -> None:
    scene.fail("nvmlDeviceGetPowerUsage", 4)
    scene.gpus[0].fail("nvmlDeviceGetFieldValues", 13)
    scene.gpus[0].deny("temperature_c")
    found = of(scene, library)
    assert (found["power"]["error"], found["fields"]["error"]) == (4, 13)
    assert (found["temperature"]["error"], found["temperature_v"]["error"]) == (3, 3)
    assert "ermission" in found["power"]["text"]


def test_older_library_lacks_later_functions(scene: Scene, library: Path, tmp_path: Path) -> None:
    before = older(library, tmp_path / "older", ["nvmlDeviceGetTemperatureV", *(name for name in CLASSES if "Gpm" in name)])
    found = of(scene, before)
    assert found["temperature"] == 27
    assert found["temperature_v"]["error"] == 13
    assert found["gpm_supported"]["error"] == 13


def test_scene_of_another_layout_is_rejected(library: Path, scene: Scene, tmp_path: Path) -> None:
    scene.path.write_bytes(b"another scene")
    with pytest.raises(AssertionError, match="no scene of this library"):
        output_of(scene, library, "everything")


def test_mock_library_is_not_loaded_into_the_test_process() -> None:
    maps = Path("/proc/self/maps").read_text()
    assert LIBRARY not in maps
    assert ctypes.sizeof(ctypes.c_void_p) == 8, "the mock driver needs 64 bits"
