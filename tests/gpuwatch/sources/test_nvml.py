"""Tests of the source ``nvml`` with a mock driver below NVIDIA's binding."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pynvml
import pytest

import gpuwatch.sources.nvml as package
from annotate.evidence import Lane
from gpuwatch import clock
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.sources.nvml.binding import official, start
from tests.gpuwatch.sources.nvml_double import (
    LOST,
    MIG_UUID,
    NOT_SUPPORTED,
    UINT,
    ULL,
    UUID,
    Library,
    binding,
    nvml,
    read,
    unofficial,
)


def sources() -> list[Path]:
    return sorted(Path(package.__file__ or "").parent.glob("*.py"))


def test_nvml_package_names_no_setter() -> None:
    """No attribute or constant of the package is an NVML function that sets, resets, clears or registers, except events."""
    allowed = {"nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlEventSetFree"}
    assert len(sources()) > 5
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else ""
            if isinstance(name, str) and name.startswith("nvml") and name not in allowed:
                for forbidden in ("Set", "Reset", "Clear", "Register" if "RegisterEvents" not in name else "Set"):
                    assert forbidden not in name, f"{path.name} names {name}"


def test_binding_accepts_nvidia_ml_py() -> None:
    assert official() is pynvml


def test_binding_rejects_a_namesake_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign module named pynvml is an error that contains the pip command."""
    monkeypatch.setitem(sys.modules, "pynvml", unofficial())
    with pytest.raises(SourceGoneError, match="pip uninstall pynvml"):
        official()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "driver is not loaded"),
        (12, r"libnvidia-ml\.so\.1 was not found"),
        (18, "differ in version"),
        (4, "no permission"),
        (999, "NVML does not start"),
    ],
)
def test_binding_names_the_reason_for_no_driver(code: int, reason: str) -> None:
    with pytest.raises(SourceGoneError, match=reason):
        start(binding(Library(errors={"nvmlInitWithFlags": code})))


def test_nvml_driver_without_gpus_is_an_error() -> None:
    with pytest.raises(SourceGoneError, match="lists no GPU"):
        nvml(gpus=0)[0].devices()


def test_nvml_device_has_all_facts_in_field_units() -> None:
    (device,) = nvml()[0].devices()
    assert device.uuid == UUID
    assert device.name == "NVIDIA H200"
    assert device.pci_bus_id == "00000000:00:06.0"
    assert (device.driver_version, device.nvml_version) == ("580.159.04", "13.580.159.04")
    assert (device.architecture, device.compute_capability) == ("Hopper", "9.0")
    assert (device.sm_clock_max_mhz, device.mem_clock_max_mhz) == (1980, 3201)
    assert (device.cuda_cores_count, device.memory_bus_bits_count) == (16_896, 6_144)
    assert (device.power_limit_w, device.power_limit_min_w, device.power_limit_max_w) == (700.0, 200.0, 700.0)
    assert (device.memory_total_bytes, device.memory_reserved_bytes) == (150_754_820_096, 644_000_000)
    assert (device.persistence_mode, device.ecc_mode, device.mig_mode) == (True, True, False)
    assert device.compute_mode == "exclusive-process"
    assert device.virtualization is None  # the mock has no answer
    assert not device.simulated


def test_nvml_driver_text_with_invalid_utf8_is_cleaned() -> None:
    """An invalid byte in a text becomes a replacement character, and the GPU still answers."""
    bad = b"\xff96.00\xc3"
    source, _ = nvml(driver_version=b"580\xff.1", name=bad, bus_id=b"0\xff:06.0", vbios=bad)
    (device,) = source.devices()
    assert (device.driver_version, device.nvml_version) == ("580�.1", "13.580�.1")
    assert (device.name, device.vbios_version, device.pci_bus_id) == ("�96.00�", "�96.00�", "0�:06.0")
    assert source.unanswered == ()


def test_nvml_uuid_with_invalid_utf8_is_cleaned() -> None:
    (device,) = nvml(uuid=b"GPU-\xff")[0].devices()
    assert device.uuid == "GPU-�"


def test_nvml_error_text_with_invalid_utf8_is_cleaned() -> None:
    source, _ = nvml(errors={"nvmlDeviceGetUUID": 777}, error_text=b"mal\xe9fique")
    with pytest.raises(SourceGoneError, match="mal�fique"):
        source.devices()


def test_nvml_memory_reserve_is_none_without_version_2() -> None:
    (device,) = nvml(missing={"nvmlDeviceGetMemoryInfo_v2"})[0].devices()
    assert device.memory_reserved_bytes is None
    assert device.memory_total_bytes == 150_754_820_096


def test_nvml_mig_instances_follow_their_board() -> None:
    """The device list has the board first, then its MIG instance with its own name and memory."""
    board, instance = nvml(mig=True)[0].devices()
    assert (board.uuid, board.parent_uuid) == (UUID, None)
    assert (instance.uuid, instance.parent_uuid) == (MIG_UUID, UUID)
    assert instance.name == "NVIDIA H200 MIG 1g.18gb"
    assert instance.memory_total_bytes == 17_000_000_000


def test_mig_instance_has_board_clocks_and_own_memory() -> None:
    reading = read(nvml(mig=True)[0], "sm_clock_mhz", "memory_used_bytes", uuid=MIG_UUID)
    assert reading.sm_clock_mhz == 1755
    assert reading.memory_used_bytes == 40_000_000


def test_nvml_read_makes_only_the_requested_calls() -> None:
    """A reading has the requested signals in the fields' units, and a second read makes one call per function."""
    source, library = nvml(fields={186: (0, UINT, 124_448, 5), 74: (0, ULL, 14_398_922_208, 5)})
    reading = read(source, "sm_clock_mhz", "power_w", "power_cap_ns", "event_reasons_mask", "utilization_ratio")
    assert reading.sm_clock_mhz == 1755
    assert reading.power_w == pytest.approx(124.448)
    assert reading.power_cap_ns == 14_398_922_208
    assert reading.event_reasons_mask == 0x404  # unknown bits are kept
    assert reading.utilization_ratio == pytest.approx(0.98)
    assert reading.mem_clock_mhz is None
    assert reading.lane == Lane.FAST
    assert 0 <= reading.took_ns < 1_000_000_000
    library.calls.clear()
    read(source, "sm_clock_mhz", "power_w", "power_cap_ns", "event_reasons_mask", "utilization_ratio")
    assert sorted(library.calls) == [
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetUtilizationRates",
    ]


def test_nvml_signals_of_one_call_share_the_call() -> None:
    source, library = nvml()
    read(source, "utilization_ratio", "mem_utilization_ratio")
    library.calls.clear()
    reading = read(source, "utilization_ratio", "mem_utilization_ratio")
    assert reading.utilization_ratio == pytest.approx(0.98)
    assert reading.mem_utilization_ratio == pytest.approx(0.23)
    assert library.calls == ["nvmlDeviceGetUtilizationRates"]


def test_deprecated_call_is_used_without_its_successor() -> None:
    assert read(nvml()[0], "temperature_c").temperature_c == 33
    assert read(nvml(missing={"nvmlDeviceGetTemperatureV"})[0], "temperature_c").temperature_c == 34


def test_nvml_unsupported_signal_is_probed_once() -> None:
    source, library = nvml(errors={"nvmlDeviceGetTotalEnergyConsumption": NOT_SUPPORTED})
    assert read(source, "energy_j").energy_j is None
    library.calls.clear()
    assert read(source, "energy_j").energy_j is None
    assert library.calls == []
    assert "energy_j" not in source.supported(UUID)


def test_nvml_temporary_error_is_none_once() -> None:
    """A call that fails temporarily gives None, and a value at the next read."""
    source, library = nvml(errors={"nvmlDeviceGetTotalEnergyConsumption": 999})
    assert read(source, "energy_j", "sm_clock_mhz").energy_j is None
    library.errors.clear()
    assert read(source, "energy_j", "sm_clock_mhz").energy_j == pytest.approx(2003.054)


def test_nvml_application_clock_is_none_at_its_default() -> None:
    assert read(nvml()[0], "sm_clock_lock_mhz").sm_clock_lock_mhz is None
    assert read(nvml(application_mhz=1500)[0], "sm_clock_lock_mhz").sm_clock_lock_mhz == 1500


def test_nvml_lost_gpu_is_found_again_by_uuid() -> None:
    """A lost GPU raises DeviceLostError; the next read gets a new handle by UUID."""
    source, library = nvml()
    read(source, "sm_clock_mhz")
    library.errors["nvmlDeviceGetClockInfo"] = LOST
    with pytest.raises(DeviceLostError) as lost:
        read(source, "sm_clock_mhz")
    assert lost.value.uuid == UUID
    library.errors.clear()
    library.calls.clear()
    assert read(source, "sm_clock_mhz").sm_clock_mhz == 1755
    assert "nvmlDeviceGetHandleByUUID" in library.calls


@pytest.mark.parametrize("code", [1, 9, 18])
def test_nvml_driver_failure_is_a_gone_source(code: int) -> None:
    """A code for a failed driver raises SourceGoneError instead of DeviceLostError."""
    source, library = nvml()
    read(source, "sm_clock_mhz")
    library.errors["nvmlDeviceGetClockInfo"] = code
    with pytest.raises(SourceGoneError):
        read(source, "sm_clock_mhz")


def test_nvml_unknown_uuid_is_a_lost_device() -> None:
    with pytest.raises(DeviceLostError, match="does not find this GPU"):
        read(nvml()[0], "sm_clock_mhz", uuid="GPU-unknown")


def test_nvml_close_is_repeatable_and_final() -> None:
    """A second close has no effect, and later reads raise SourceGoneError."""
    source, library = nvml()
    read(source, "sm_activity_ratio")
    source.events(0.0)
    source.close()
    source.close()
    assert library.calls.count("nvmlShutdown") == 1
    assert "nvmlEventSetFree" in library.calls
    with pytest.raises(SourceGoneError, match="closed"):
        read(source, "sm_clock_mhz")


def test_nvml_events_have_uuid_kind_and_value() -> None:
    """Xids and memory errors become events of their GPU; other event types are dropped."""
    source, _library = nvml(events=[(0x8, 79), (0x10, 0), (0x2, 0), (0x80, 0), (0x8, 999)])
    before_ns = clock.now_ns()
    events = source.events(0.01)
    assert [(event.kind, event.value) for event in events] == [("xid", 79), ("ecc", 0), ("xid", 999)]
    assert all(event.uuid == UUID and event.at_ns >= before_ns for event in events)
    assert source.events(0.0) == ()
    assert source.notes(UUID)["events"] == "ecc, xid"


def test_nvml_unsupported_events_wait_for_the_timeout() -> None:
    """Without an event set, ``events`` still waits for the timeout."""
    source, _ = nvml(errors={"nvmlEventSetCreate": NOT_SUPPORTED})
    begin_ns = clock.now_ns()
    assert source.events(0.05) == ()
    assert clock.now_ns() - begin_ns > 40_000_000
