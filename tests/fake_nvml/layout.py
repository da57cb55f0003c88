"""The memory layout shared by the C library and the tests, declared once here and written as a C header for the build."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "source"
MAGIC = 0x66616B65_6E766D6C

GPUS, INSTANCES, PROCESSES, EVENTS, TEXT = 40, 7, 512, 64, 96


def _table(name: str) -> list[tuple[str, ...]]:
    """Return the rows of a table that the C sources also include."""
    rows = re.findall(r"^[A-Z]+\((.*)\)$", (SOURCE / name).read_text(), re.MULTILINE)
    return [tuple(part.strip() for part in row.split(",")) for row in rows]


CLASSES: dict[str, str] = {function: kind for function, kind in _table("functions.def")}  # noqa: C416 - rows are tuples of any length
FUNCTIONS = {function: number for number, function in enumerate(CLASSES)}
DEFAULTS = {signal: float(int(value, 0)) for signal, value in _table("signals.def")}
SIGNALS = {signal: number for number, signal in enumerate(DEFAULTS)}
FIELDS = {int(field): number for number, (field, _, _) in enumerate(_table("fields.def"))}
FIELD_SIGNALS = {int(field): signal for field, signal, _ in _table("fields.def")}


class Call(ctypes.Structure):
    """The count, cost, error code and hang of one function, for all GPUs or for one."""

    _fields_ = [
        ("calls_count", ctypes.c_uint64),  # the library writes this
        ("cost_ns", ctypes.c_uint64),
        ("code", ctypes.c_int32),
        ("hangs", ctypes.c_uint32),
    ]


class Line(ctypes.Structure):
    """A number over time: ``value + rate * (now - since)``, plus or minus up to ``ripple``."""

    _fields_ = [
        ("value", ctypes.c_double),
        ("rate", ctypes.c_double),  # per second
        ("ripple", ctypes.c_double),
        ("since_ns", ctypes.c_int64),
    ]


class Signal(ctypes.Structure):
    """A number as of its last refresh.  One of two lines is valid, so that a change is written completely and then shown."""

    _fields_ = [
        ("lines", Line * 2),
        ("refresh_ns", ctypes.c_int64),
        ("shown", ctypes.c_uint32),
        ("code", ctypes.c_int32),
    ]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint32),
        ("lists", ctypes.c_uint32),  # 1 compute, 2 graphics, 4 MPS; 0: only in the utilisation record
        ("memory_bytes", ctypes.c_uint64),
        ("instance_id", ctypes.c_uint32),
        ("compute_id", ctypes.c_uint32),
        ("sm_percent", ctypes.c_uint32),
        ("mem_percent", ctypes.c_uint32),
    ]


class Processes(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint32), ("entries", Process * PROCESSES)]


class Instance(ctypes.Structure):
    _fields_ = [
        ("present", ctypes.c_uint32),
        ("instance_id", ctypes.c_uint32),
        ("compute_id", ctypes.c_uint32),
        ("cores_count", ctypes.c_uint32),
        ("uuid", ctypes.c_char * TEXT),
        ("name", ctypes.c_char * TEXT),
        ("memory_total_bytes", ctypes.c_uint64),
        ("memory_used_bytes", ctypes.c_uint64),
        ("sm_activity_percent", ctypes.c_double),
        ("sm_occupancy_percent", ctypes.c_double),
        ("tensor_activity_percent", ctypes.c_double),
        ("dram_activity_percent", ctypes.c_double),
    ]


class Gpu(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),  # 0, or the answer to every call: 15 lost, 16 must be reset
        ("absent", ctypes.c_uint32),  # not in the driver's list of GPUs
        ("generation", ctypes.c_uint32),  # handles of an earlier generation are invalid
        ("attach_anew", ctypes.c_uint32),  # if set, a process attached before this generation must attach again
        ("uuid", ctypes.c_char * TEXT),
        ("name", ctypes.c_char * TEXT),
        ("serial", ctypes.c_char * TEXT),
        ("vbios", ctypes.c_char * TEXT),
        ("domain", ctypes.c_uint32),
        ("bus", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("pci_ids", ctypes.c_uint32),
        ("signals", Signal * len(SIGNALS)),
        ("field_codes", ctypes.c_int32 * len(FIELDS)),  # -1: success without a timestamp, with no value
        ("calls", Call * len(FUNCTIONS)),
        ("shown", ctypes.c_uint32),  # index of the valid list
        ("processes", Processes * 2),
        ("instances", Instance * INSTANCES),
    ]


class Event(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint32), ("kind", ctypes.c_uint64), ("value", ctypes.c_uint64)]


class Scene(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("epoch_ns", ctypes.c_int64),
        ("driver_code", ctypes.c_int32),  # 0, or the answer to every call: 9 not loaded, 18 versions differ, 4 no permission
        ("generation", ctypes.c_uint32),  # generation of the driver: a process attached to an earlier one must attach again
        ("stale_code", ctypes.c_int32),  # answer to a process attached to an earlier generation
        ("cuda_version", ctypes.c_int32),
        ("driver_version", ctypes.c_char * TEXT),
        ("nvml_version", ctypes.c_char * TEXT),
        ("power_period_ns", ctypes.c_int64),
        ("power_samples_count", ctypes.c_uint32),
        ("stamps_boot", ctypes.c_uint32),  # CLOCK_BOOTTIME instead of the wall clock stamps the samples
        ("utilization_period_ns", ctypes.c_int64),
        ("gpus_count", ctypes.c_uint32),
        ("events_count", ctypes.c_uint64),
        ("events", Event * EVENTS),
        ("calls", Call * len(FUNCTIONS)),
        ("gpus", Gpu * GPUS),
    ]


_STRUCTURES = (Call, Line, Signal, Process, Processes, Instance, Gpu, Event, Scene)
_SCALARS = {
    ctypes.c_int32: "int32_t", ctypes.c_uint32: "uint32_t", ctypes.c_int64: "int64_t", ctypes.c_uint64: "uint64_t",
    ctypes.c_double: "double", ctypes.c_char: "char",
}  # fmt: skip


def header() -> str:
    """Return these structures in C."""
    names = {"GPUS": GPUS, "INSTANCES": INSTANCES, "PROCESSES": PROCESSES, "EVENTS": EVENTS}
    lines = [
        "/* Written by layout.py from the structures the tests use. */",
        "#include <stdint.h>",
        f"#define MAGIC {MAGIC:#x}ull",
    ]
    lines += [f"#define {name} {number}" for name, number in names.items()]
    for structure in _STRUCTURES:
        members = [f"    {_declared(name, kind)};" for name, kind in _members(structure)]
        lines += ["typedef struct {", *members, f"}} {structure.__name__};"]
        lines += [f'_Static_assert(sizeof({structure.__name__}) == {ctypes.sizeof(structure)}, "Python uses another layout");']
    return "\n".join(lines) + "\n"


def _members(structure: type[ctypes.Structure]) -> list[tuple[str, Any]]:
    return [(member[0], member[1]) for member in structure._fields_]


def _declared(name: str, kind: Any) -> str:
    if issubclass(kind, ctypes.Array):
        return f"{_declared(name, kind._type_)}[{kind._length_}]"
    return f"{_SCALARS.get(kind, kind.__name__)} {name}"
