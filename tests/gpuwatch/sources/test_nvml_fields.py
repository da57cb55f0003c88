"""Tests of the signals' table and of NVML's field values."""

from __future__ import annotations

import ctypes
import math

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.evidence import Lane, signals
from gpuwatch.errors import DeviceLostError
from gpuwatch.sources.nvml.fields import _ENTRY, decoded
from gpuwatch.sources.nvml.signals import SIGNALS
from tests.gpuwatch.sources.nvml_double import LOST, UINT, ULL, UUID, nvml, read


def counters(*ids: int, kind: int = ULL) -> dict[int, tuple[int, int, int, int]]:
    return {field: (0, kind, 1000 * field, 1) for field in ids}


def test_signal_table_covers_all_lanes() -> None:
    """The table has exactly the signals of the fast, slow and edge lanes."""
    wanted = {name for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE) for name in signals(lane)}
    assert set(SIGNALS) == wanted


def test_signal_table_names_exist_in_the_binding() -> None:
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


def test_average_power_falls_back_from_field_to_call() -> None:
    """Average power is read by ``nvmlDeviceGetPowerUsage`` if the field is not supported."""
    assert read(nvml()[0], "power_average_w").power_average_w == pytest.approx(124.812)


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
    """Slow-down time comes from the fields with that meaning on this driver, or else from a call; the notes name the source."""
    source, _ = nvml(fields=fields, driver_version=driver.encode())
    assert read(source, "sw_thermal_ns").sw_thermal_ns == expected_ns
    assert source.notes(UUID)["slow-down time"].startswith(stated)
    hardware = read(source, "hw_thermal_ns", "power_brake_ns")
    if stated.startswith("fields"):
        assert (hardware.hw_thermal_ns, hardware.power_brake_ns) == (expected_ns + 1000, expected_ns + 2000)
    else:
        assert (hardware.hw_thermal_ns, hardware.power_brake_ns) == (None, None)


def test_field_code_can_report_a_lost_gpu() -> None:
    source, library = nvml(fields={186: (0, UINT, 1000, 1)})
    read(source, "power_w")
    library.fields[186] = (LOST, UINT, 0, 0)
    with pytest.raises(DeviceLostError):
        read(source, "power_w")
