"""Tests of the source ``nvml`` with a mock driver below NVIDIA's binding; tests marked ``gpu`` use a real driver."""

from __future__ import annotations

import ast
import ctypes
import math
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuwatch.sources.nvml as package
from annotate.evidence import Lane, Reading, Visibility, signals
from gpuwatch import clock
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.host.processes import Identities, Identity
from gpuwatch.sampling.plan import PULSE
from gpuwatch.sources.nvml import Nvml
from gpuwatch.sources.nvml.binding import official, start
from gpuwatch.sources.nvml.compiled_loop import compiled
from gpuwatch.sources.nvml.fields import _ENTRY, decoded
from gpuwatch.sources.nvml.gpm import Gpm
from gpuwatch.sources.nvml.power_record import DensePower
from gpuwatch.sources.nvml.process_lists import ProcessLists
from gpuwatch.sources.nvml.signals import SIGNALS
from tests.gpuwatch.sources.nvml_double import BOARD, LOST, MIG_UUID, NOT_SUPPORTED, UUID, Library, binding, unofficial

ULL, UINT = 3, 1


def counters(*ids: int, kind: int = ULL) -> dict[int, tuple[int, int, int, int]]:
    return {field: (0, kind, 1000 * field, 1) for field in ids}


def nvml(**settings: Any) -> tuple[Nvml, Library]:
    library = Library(**settings)
    return Nvml(binding(library)), library


def read(source: Nvml, *names: str, uuid: str = UUID) -> Reading:
    return source.read(uuid, Lane.FAST, names)


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


def test_signal_table_covers_all_lanes() -> None:
    """The table has exactly the signals of the fast, slow and edge lanes."""
    wanted = {name for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE) for name in signals(lane)}
    assert set(SIGNALS) == wanted


def test_signal_table_names_exist_in_the_binding() -> None:
    """Every function and constant that the table names exists in the binding."""
    for alternatives in SIGNALS.values():
        for question in alternatives:
            for name in (getattr(question, "function", None), *getattr(question, "args", ()), *getattr(question, "names", ())):
                assert name in (None, "application_clock") or hasattr(pynvml, name), name


def test_field_entry_layout_is_the_binding_structure() -> None:
    assert _ENTRY.size == ctypes.sizeof(pynvml.c_nvmlFieldValue_t)
    packed = _ENTRY.pack(186, 2, 77, -5, 1, 3, 0xDEADBEEF_00000001)
    entry = pynvml.c_nvmlFieldValue_t.from_buffer_copy(packed)
    assert (entry.fieldId, entry.scopeId, entry.timestamp, entry.latencyUsec) == (186, 2, 77, -5)
    assert (entry.valueType, entry.nvmlReturn, entry.value.uiVal, entry.value.ullVal) == (1, 3, 1, 0xDEADBEEF_00000001)


@given(st.integers(0, 6), st.integers(0, 2**64 - 1))
def test_field_value_is_decoded_by_its_type(kind: int, raw: int) -> None:
    value = pynvml.c_nvmlValue_t(ullVal=raw)
    member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[kind]
    expected, found = getattr(value, member), decoded(kind, raw)
    assert found == expected or (isinstance(expected, float) and math.isnan(expected) and math.isnan(found or 0.0))


def test_field_of_an_unknown_type_is_none() -> None:
    assert decoded(7, 1) is None


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
    assert device.virtualization is None  # the mock does not answer it
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
    """A MIG instance has its board's clocks and its own memory."""
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
    """The successor of a deprecated call is used if the library has it, otherwise the deprecated call."""
    assert read(nvml()[0], "temperature_c").temperature_c == 33
    assert read(nvml(missing={"nvmlDeviceGetTemperatureV"})[0], "temperature_c").temperature_c == 34


def test_average_power_falls_back_from_field_to_call() -> None:
    """Average power is read by ``nvmlDeviceGetPowerUsage`` if the field is not supported."""
    assert read(nvml()[0], "power_average_w").power_average_w == pytest.approx(124.812)


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


def test_field_success_without_a_timestamp_is_none() -> None:
    source, _ = nvml(fields={82: (0, UINT, 0, 0)})
    assert read(source, "memory_temperature_c").memory_temperature_c is None


def test_field_that_fails_later_is_none() -> None:
    """A field that fails later becomes None; the other fields keep their values."""
    source, library = nvml(fields={186: (0, UINT, 1000, 1), 74: (0, ULL, 5, 1)})
    assert read(source, "power_w", "power_cap_ns").power_w == 1.0
    library.fields[186] = (999, UINT, 0, 0)
    reading = read(source, "power_w", "power_cap_ns")
    assert (reading.power_w, reading.power_cap_ns) == (None, 5)


def test_fields_of_one_signal_are_summed_or_none() -> None:
    """A signal of several fields is their sum, and None if one of the fields has no value."""
    source, library = nvml(fields={142: (0, ULL, 2, 1), 143: (0, ULL, 3, 1)})
    assert read(source, "remapped_rows_count").remapped_rows_count == 5
    library.fields[143] = (999, ULL, 0, 1)
    assert read(source, "remapped_rows_count").remapped_rows_count is None


def test_nvml_application_clock_is_none_at_its_default() -> None:
    assert read(nvml()[0], "sm_clock_lock_mhz").sm_clock_lock_mhz is None
    assert read(nvml(application_mhz=1500)[0], "sm_clock_lock_mhz").sm_clock_lock_mhz == 1500


@pytest.mark.parametrize(
    ("fields", "driver", "stated", "expected_ns"),
    [
        (counters(269, 270, 271), "580.159.04", "fields 269-271", 269_000),
        (counters(251, 252, 253), "575.57.08", "fields 251-253", 251_000),
        (counters(251, 252, 253, 269, 270, 271), "580.159.04", "fields 269-271", 269_000),
        (counters(251, 252, 253), "590.48.01", "nvmlDeviceGetViolationStatus", 7_000_000_001),
        (counters(269, 270, 271, kind=UINT), "580.159.04", "nvmlDeviceGetViolationStatus", 7_000_000_001),
        (counters(269, 270), "580.159.04", "nvmlDeviceGetViolationStatus", 7_000_000_001),
        ({}, "535.54.03", "nvmlDeviceGetViolationStatus", 7_000_000_001),
    ],
)
def test_slowdown_time_comes_from_the_ids_in_the_notes(
    fields: dict[int, tuple[int, int, int, int]], driver: str, stated: str, expected_ns: int
) -> None:
    """Slow-down time comes from the ids with that meaning on this driver, and the notes name these ids."""
    source, _ = nvml(fields=fields, driver_version=driver.encode())
    assert read(source, "sw_thermal_ns").sw_thermal_ns == expected_ns
    assert source.notes(UUID)["slow-down time"].startswith(stated)
    hardware = read(source, "hw_thermal_ns", "power_brake_ns")
    if stated.startswith("fields"):
        assert (hardware.hw_thermal_ns, hardware.power_brake_ns) == (expected_ns + 1000, expected_ns + 2000)
    else:
        assert (hardware.hw_thermal_ns, hardware.power_brake_ns) == (None, None)


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


def test_field_code_can_report_a_lost_gpu() -> None:
    source, library = nvml(fields={186: (0, UINT, 1000, 1)})
    read(source, "power_w")
    library.fields[186] = (LOST, UINT, 0, 0)
    with pytest.raises(DeviceLostError):
        read(source, "power_w")


@pytest.mark.parametrize("code", [1, 9, 18])
def test_nvml_driver_failure_is_a_gone_source(code: int) -> None:
    """A code that means "no driver" raises SourceGoneError instead of DeviceLostError."""
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


def lists(library: Library, visibility: Visibility = Visibility.HOST) -> ProcessLists:
    api = binding(library)
    handle = api.c_nvmlDevice_t(api.struct_c_nvmlDevice_t.from_address(BOARD))
    named = Identities(lambda pid: Identity(name=f"name-{pid}", user="me", started_s=1.0))
    return ProcessLists(api, UUID, handle, named, visibility)


def test_listed_process_has_its_name_and_memory() -> None:
    (process,), whole = lists(Library(processes=[(408, 2_355_000_000)])).processes(utilization=False)
    assert (process.pid, process.name, process.memory_bytes, process.listed) == (408, "name-408", 2_355_000_000, True)
    assert process.utilization_ratio is None
    assert whole


def test_utilization_starts_at_a_cursor_and_drops_bad_entries() -> None:
    """The first read of the utilisation record only sets the cursor; later reads drop old entries and shares above 100 %."""
    library = Library(processes=[(408, 1)], utilization=[(408, 100, 98)])
    asked = lists(library)
    assert asked.processes(utilization=True)[0][0].utilization_ratio is None
    library.utilization = [(408, 100, 98)]  # the same entry again
    assert asked.processes(utilization=True)[0][0].utilization_ratio is None
    library.utilization = [(408, 300, 97), (408, 200, 3), (409, 300, 4_000_000_000)]
    (process,), _ = asked.processes(utilization=True)
    assert process.pid == 408
    assert process.utilization_ratio == pytest.approx(0.97)


@pytest.mark.parametrize(("visibility", "name"), [(Visibility.HOST, "name-77"), (Visibility.NAMESPACE, None)])
def test_process_seen_only_by_utilization_is_unlisted(visibility: Visibility, name: str | None) -> None:
    """A process that only the utilisation record names is unlisted, and has no name outside the host's PID namespace."""
    library = Library(utilization=[(77, 100, 1)])
    asked = lists(library, visibility)
    asked.processes(utilization=True)
    library.utilization = [(77, 200, 98), (78, 200, 0)]
    (process,), _ = asked.processes(utilization=True)
    assert (process.pid, process.listed, process.memory_bytes, process.name) == (77, False, None, name)


@pytest.mark.parametrize("code", [0, 6])
def test_utilization_is_none_without_samples(code: int) -> None:
    """An empty utilisation record and the code NotFound both give no share."""
    library = Library(processes=[(1, 1)], errors={"nvmlDeviceGetProcessUtilization": code} if code else {})
    library.utilization = [] if code else library.utilization
    (process,), _ = lists(library).processes(utilization=True)
    assert process.utilization_ratio is None


def test_unanswered_process_list_has_unknown_visibility() -> None:
    source, _ = nvml(errors={"nvmlDeviceGetComputeRunningProcesses_v3": NOT_SUPPORTED})
    process_list = source.read_process_list(UUID)
    assert process_list.processes == ()
    assert process_list.visibility == Visibility.UNKNOWN


class Clocks:
    """A monotonic time, and the offsets of the wall clock and the boot clock from it; tests set all three."""

    def __init__(self) -> None:
        self.now_ns, self.wall_ns, self.boot_ns = 50_000_000_000, 1_700_000_000_000_000_000, 3_600_000_000_000

    def power(self, library: Library) -> DensePower:
        api = binding(library)
        handle = api.c_nvmlDevice_t(api.struct_c_nvmlDevice_t.from_address(BOARD))
        return DensePower(
            api,
            UUID,
            handle,
            now_ns=lambda: self.now_ns,
            wall_offset_ns=lambda: self.wall_ns,
            boot_offset_ns=lambda: self.boot_ns,
        )

    def stamp_us(self, ago_s: float, offset_ns: int) -> int:
        return (self.now_ns - round(ago_s * 1e9) + offset_ns) // 1000


@pytest.mark.parametrize("by", ["wall", "boot"])
def test_power_stamps_of_either_clock_become_monotonic(by: str) -> None:
    """Stamps of the wall clock and of the boot clock become monotonic times."""
    clocks = Clocks()
    offset_ns = clocks.wall_ns if by == "wall" else clocks.boot_ns
    library = Library(samples=[(clocks.stamp_us(0.04, offset_ns), 100_000), (clocks.stamp_us(0.02, offset_ns), 700_000)])
    power = clocks.power(library)
    times, watts = power.gained()
    assert [clocks.now_ns - at_ns for at_ns in times] == pytest.approx([40_000_000, 20_000_000], abs=1000)
    assert watts == (100.0, 700.0)
    assert power.stamped_by == by
    assert power.gained() == ((), ())  # the cursor: nothing newer
    clocks.now_ns += 20_000_000
    library.samples.append((clocks.stamp_us(0.0, offset_ns), 710_000))
    assert power.gained()[1] == (710.0,)


def test_empty_power_record_is_not_an_error() -> None:
    assert nvml()[0].power_record(UUID).sample_at_ns == ()


@pytest.mark.parametrize("step_s", [-3600.0, -0.5, 0.5, 3600.0])
def test_wall_clock_step_drops_one_interval_of_power(step_s: float) -> None:
    """A step of the wall clock drops one interval; the next intervals are complete."""
    clocks = Clocks()
    library = Library(samples=[(clocks.stamp_us(0.02, clocks.wall_ns), 1000)])
    power = clocks.power(library)
    assert power.gained()[1] == (1.0,)
    clocks.now_ns += 1_000_000_000
    library.samples.append((clocks.stamp_us(0.5, clocks.wall_ns), 2000))  # stamped before the step
    clocks.wall_ns += round(step_s * 1e9)
    library.samples.append((clocks.stamp_us(0.1, clocks.wall_ns), 3000))  # stamped after the step
    assert power.gained() == ((), ())
    for second in range(5):
        clocks.now_ns += 1_000_000_000
        library.samples.append((clocks.stamp_us(0.1, clocks.wall_ns), 4000 + second))
        times, watts = power.gained()
        assert watts == (4.0 + second / 1000,)
        assert abs(clocks.now_ns - times[0] - 100_000_000) <= 1000


def test_power_stamps_of_an_unknown_clock_are_dropped() -> None:
    library = Library(samples=[(12345, 1000)])
    assert Clocks().power(library).gained() == ((), ())


def test_gpm_activity_needs_two_samples_100_ms_apart() -> None:
    """GPM gives no ratio before two samples are 100 ms apart, and drops NaN."""
    library, now = Library(), [0]
    api = binding(library)
    gpm = Gpm(api, UUID, None, now_ns=lambda: now[0])
    wanted = [("sm_activity_ratio", 2), ("sm_occupancy_ratio", 3)]

    def ask(at_ms: int) -> dict[str, Any]:
        now[0] = at_ms * 1_000_000
        values: dict[str, Any] = {}
        gpm.ask(wanted, values)
        return values

    assert ask(1) == {}
    assert ask(51) == {}
    assert ask(601) == {"sm_activity_ratio": pytest.approx(0.999), "sm_occupancy_ratio": pytest.approx(0.5)}
    library.gpm = [math.nan, 25.0]
    assert ask(1201) == {"sm_occupancy_ratio": 0.25}
    gpm.close()
    assert library.calls.count("nvmlGpmSampleAlloc") == library.calls.count("nvmlGpmSampleFree") == 2


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


@pytest.fixture(name="real")
def _real() -> Any:
    source = Nvml()
    yield source
    source.close()


@pytest.mark.gpu
def test_gpu_device_has_all_identity_facts(real: Nvml) -> None:
    for device in real.devices():
        print(device)
        for fact in ("uuid", "name", "pci_bus_id", "driver_version", "nvml_version", "memory_total_bytes", "sm_clock_max_mhz"):
            assert getattr(device, fact) is not None, fact
        assert device.uuid.startswith(("GPU-", "MIG-"))


@pytest.mark.gpu
def test_gpu_memory_used_includes_the_reserve(real: Nvml) -> None:
    device = real.devices()[0]
    used = real.read(device.uuid, Lane.FAST, ("memory_used_bytes",)).memory_used_bytes
    print("used", used, "reserved", device.memory_reserved_bytes, "of", device.memory_total_bytes)
    assert used is not None
    assert device.memory_reserved_bytes is not None
    assert used >= device.memory_reserved_bytes - 64_000_000


@pytest.mark.gpu
def test_gpu_fast_row_is_complete(real: Nvml) -> None:
    """Every signal of the fast lane has a value; power, temperature, energy and activity are plausible."""
    device = real.devices()[0]
    real.read(device.uuid, Lane.SLOW, signals(Lane.SLOW))
    clock.MonotonicClock().wait_until(clock.now_ns() + 600_000_000, threading.Event())
    slow = real.read(device.uuid, Lane.SLOW, signals(Lane.SLOW))
    fast = real.read(device.uuid, Lane.FAST, signals(Lane.FAST))
    edge = real.read(device.uuid, Lane.EDGE, signals(Lane.EDGE))
    for reading in (fast, slow, edge):
        print(reading.lane, f"took {reading.took_ns / 1e6:.3f} ms")
        for name in signals(reading.lane):
            print(f"  {name:24} {getattr(reading, name)}")
    print(dict(real.notes(device.uuid)), "unsupported:", sorted(set(SIGNALS) - real.supported(device.uuid)))
    for name in signals(Lane.FAST):
        assert getattr(fast, name) is not None, name
    assert fast.power_w is not None
    assert 10 < fast.power_w < 2000
    assert fast.temperature_c is not None
    assert 5 < fast.temperature_c < 110
    assert slow.energy_j is not None
    assert slow.energy_j > 0
    assert slow.sm_activity_ratio is None or 0 <= slow.sm_activity_ratio <= 1


@pytest.mark.gpu
def test_gpu_fast_row_takes_less_than_200_us(real: Nvml) -> None:
    uuid = real.devices()[0].uuid
    names = signals(Lane.FAST)
    real.read(uuid, Lane.FAST, names)
    took = sorted(real.read(uuid, Lane.FAST, names).took_ns for _ in range(2000))
    begin_ns = clock.now_ns()
    for _ in range(2000):
        real.read(uuid, Lane.FAST, names)
    whole_us = (clock.now_ns() - begin_ns) / 2000 / 1000
    print(f"fast row: calls p50 {took[1000] / 1000:.1f} us, p99 {took[1980] / 1000:.1f} us; whole read {whole_us:.1f} us")
    assert took[1000] < 200_000  # a broken plan (an exception or a probe each time) costs milliseconds


@pytest.mark.gpu
def test_gpu_compiled_loop_reads_the_same_signals(real: Nvml) -> None:
    """The compiled loop and a single read have values for the same signals; memory and temperature agree."""
    uuid, names = real.devices()[0].uuid, signals(Lane.FAST)
    series = real.series(uuid, names, PULSE)
    assert series is not None, compiled()[1]
    alone = real.read(uuid, Lane.FAST, names)
    begin_ns, begin_s = clock.now_ns(), time.thread_time()
    passes, error = series.run(begin_ns, begin_ns + 400_000_000, 10_000_000, row_at_ns=0, row_after_ns=45_000_000)
    spent_us = (time.thread_time() - begin_s) / len(passes) * 1e6
    rows = [each.reading for each in passes if each.reading.lane is Lane.FAST]
    print(
        f"{len(passes)} passes, {len(rows)} of them whole rows, {spent_us:.0f} us of CPU time per pass, with waking and reading"
    )
    assert error is None
    for name in names:
        assert (getattr(rows[-1], name) is None) is (getattr(alone, name) is None), name
    assert rows[-1].memory_used_bytes == pytest.approx(alone.memory_used_bytes, rel=0.05)
    assert rows[-1].temperature_c == pytest.approx(alone.temperature_c, abs=5)


@pytest.mark.gpu
def test_gpu_power_record_times_are_monotonic(real: Nvml) -> None:
    uuid = real.devices()[0].uuid
    waits = threading.Event()
    first = real.power_record(uuid)
    waits.wait(1.0)
    record = real.power_record(uuid)
    ages_ms = [(record.at_ns - at_ns) / 1e6 for at_ns in record.sample_at_ns]
    steps_ms = [(b - a) / 1e6 for a, b in zip(record.sample_at_ns, record.sample_at_ns[1:], strict=False)]
    print(f"first {len(first.sample_w)} then {len(record.sample_w)} samples, ages {ages_ms[-1:]}..{ages_ms[:1]} ms")
    print(
        f"steps {min(steps_ms):.1f}..{max(steps_ms):.1f} ms, {record.took_ns / 1e6:.2f} ms, {real.notes(uuid)['power record']}"
    )
    assert record.sample_w, "an idle H200 with persistence on still fills its record"
    assert -60 < ages_ms[-1] < 500
    assert ages_ms[0] < 1500
    assert all(0 < draw_w < 2000 for draw_w in record.sample_w)
    assert list(record.sample_at_ns) == sorted(set(record.sample_at_ns))


@pytest.mark.gpu
def test_gpu_process_list_contains_this_process(real: Nvml) -> None:
    """If the host's processes are visible, the list has this process with a name and memory."""
    torch = pytest.importorskip("torch")
    uuid = real.devices()[0].uuid
    work = torch.ones(4096, 4096, device="cuda:0")
    real.read_process_list(uuid, utilization=True)
    until_ns = clock.now_ns() + 2_000_000_000
    while clock.now_ns() < until_ns:
        work = work @ work * 0
    torch.cuda.synchronize()
    process_list = real.read_process_list(uuid, utilization=True)
    print(process_list.visibility, f"{process_list.took_ns / 1e6:.2f} ms", *process_list.processes, sep="\n  ")
    listed = {process.pid: process for process in process_list.processes if process.listed}
    if process_list.visibility == Visibility.HOST:
        assert os.getpid() in listed
        assert listed[os.getpid()].name
        assert (listed[os.getpid()].memory_bytes or 0) > 10_000_000


@pytest.mark.gpu
def test_gpu_events_wait_and_return(real: Nvml) -> None:
    uuid = real.devices()[0].uuid
    begin_ns = clock.now_ns()
    events = real.events(0.5)
    print(f"{len(events)} events after {(clock.now_ns() - begin_ns) / 1e9:.2f} s; kinds: {real.notes(uuid)['events']}")
    assert clock.now_ns() - begin_ns < 5_000_000_000
    assert all(event.kind in {"xid", "ecc"} for event in events)


@pytest.mark.gpu
def test_gpu_source_reopens_after_a_close() -> None:
    for _ in range(2):
        source = Nvml()
        assert source.read(source.devices()[0].uuid, Lane.FAST, ("sm_clock_mhz",)).sm_clock_mhz
        source.events(0.0)
        source.close()
