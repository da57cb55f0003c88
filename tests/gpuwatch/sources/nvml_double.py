"""A mock driver library of Python functions, below a private copy of NVIDIA's binding.

The binding's code runs: structures, two-call lists, error classes.  Only the C library is replaced.
"""

# ruff: noqa: N802 - the functions have the names of the C functions that they replace

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from annotate.evidence import Lane, Reading
from gpuwatch.sources.nvml import Nvml

NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, TIMEOUT, LOST = 3, 6, 7, 10, 15
ULL, UINT = 3, 1  # types of field values
UUID = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
MIG_UUID = "MIG-bbbbbbbb-0000-0000-0000-000000000001"
BOARD, INSTANCE = 0x1000, 0x2000


def _copied() -> Any:
    found = importlib.util.find_spec("pynvml")
    assert found is not None
    assert found.origin is not None
    spec = importlib.util.spec_from_file_location("pynvml_double", found.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynvml_double"] = module  # the binding looks up this entry to create error classes
    spec.loader.exec_module(module)
    return module


_COPY = _copied()


def binding(library: object) -> Any:
    """Return the copy of pynvml with ``library`` as its loaded library, in place of the library of the call before.

    All libraries share one copy, because hundreds of copies would take seconds.
    """
    _COPY.nvmlLib = library
    _COPY._nvmlGetFunctionPointer_cache.clear()
    return _COPY


def unofficial() -> ModuleType:
    """Return a stand-in for the abandoned fork: a module ``pynvml`` without the binding's internal functions."""
    return ModuleType("pynvml")


_FIELD_VALUE: Any = _COPY.c_nvmlFieldValue_t
_PROCESS: Any = _COPY.c_nvmlProcessInfo_v3_t
_SHARE: Any = _COPY.c_nvmlProcessUtilizationSample_t
_SAMPLE: Any = _COPY.c_nvmlSample_t


class _Function:
    """A stand-in for a ctypes function: callable, with a settable result type."""

    restype: Any = None

    def __init__(self, run: Callable[..., int | bytes]) -> None:
        self._run = run

    def __call__(self, *args: Any) -> Any:
        return self._run(*args)


def _into(reference: Any, value: Any) -> int:
    reference._obj.value = value
    return 0


@dataclass
class Library:
    """The driver of one GPU.

    ``errors`` holds return codes by function, ``fields`` holds (code, type, raw, timestamp) by field id.
    """

    driver_version: bytes = b"580.159.04"
    name: bytes | None = None
    vbios: bytes | None = None
    uuid: bytes | None = None
    bus_id: bytes = b"00000000:00:06.0"
    error_text: bytes | None = None
    gpus: int = 1
    mig: bool = False
    errors: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    fields: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    processes: list[tuple[int, int]] = field(default_factory=list)
    utilization: list[tuple[int, int, int]] = field(default_factory=list)  # pid, timestamp us, share
    samples: list[tuple[int, int]] = field(default_factory=list)  # timestamp us, milliwatts
    events: list[tuple[int, int]] = field(default_factory=list)  # type, data
    gpm: list[float] = field(default_factory=lambda: [99.9, 50.0, 93.5, 17.4])
    calls: list[str] = field(default_factory=list)
    application_mhz: int = 1980

    def __getattr__(self, name: str) -> Any:
        run = getattr(type(self), f"_{name}", None)
        if not name.startswith("nvml") or run is None or name in self.missing:
            raise AttributeError(name)

        def call(*args: Any) -> int | bytes:
            self.calls.append(name)
            if code := self.errors.get(name, 0):
                return code
            answer = run(self, *args)
            return answer if isinstance(answer, bytes) else int(answer)

        return _Function(call)

    # The methods below have the name of the C function after one underscore, and the same arguments.

    def _nvmlInitWithFlags(self, flags: int) -> int:
        return 0

    def _nvmlShutdown(self) -> int:
        return 0

    def _nvmlErrorString(self, code: int) -> Any:
        return self.error_text or b"error %d" % code

    def _nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> int:
        buffer.value = self.driver_version
        return 0

    def _nvmlSystemGetNVMLVersion(self, buffer: Any, size: Any) -> int:
        buffer.value = b"13." + self.driver_version
        return 0

    def _nvmlDeviceGetCount_v2(self, number: Any) -> int:
        return _into(number, self.gpus)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        device._obj.contents = device._obj._type_.from_address(BOARD)
        return 0

    def _nvmlDeviceGetHandleByUUID(self, uuid: Any, device: Any) -> int:
        at = {UUID.encode(): BOARD, MIG_UUID.encode(): INSTANCE}.get(uuid.value)
        if at is None:
            return NOT_FOUND
        device._obj.contents = device._obj._type_.from_address(at)
        return 0

    def _nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Any, device: Any) -> int:
        device._obj.contents = device._obj._type_.from_address(BOARD)
        return 0

    def _nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = self.uuid or (UUID if _at(handle) == BOARD else MIG_UUID).encode()
        return 0

    def _nvmlDeviceGetName(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = self.name or b"NVIDIA H200" if _at(handle) == BOARD else b"NVIDIA H200 MIG 1g.18gb"
        return 0

    def _nvmlDeviceGetVbiosVersion(self, handle: Any, buffer: Any, size: Any) -> int:
        if self.vbios is None:
            return NOT_SUPPORTED
        buffer.value = self.vbios
        return 0

    def _nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        info._obj.busId = self.bus_id
        return 0

    def _nvmlDeviceGetArchitecture(self, handle: Any, out: Any) -> int:
        return _into(out, 9)

    def _nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        return _into(major, 9) or _into(minor, 0)

    def _nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: Any, out: Any) -> int:
        return _into(out, 1980 if kind.value == 1 else 3201)

    def _nvmlDeviceGetClockInfo(self, handle: Any, kind: Any, out: Any) -> int:
        if _at(handle) != BOARD:
            return NOT_SUPPORTED
        return _into(out, 1755 if kind.value == 1 else 3201)

    def _nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, out: Any) -> int:
        return _into(out, 700_000)

    def _nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any, out: Any) -> int:
        return _into(out, 700_000)

    def _nvmlDeviceGetPowerManagementLimitConstraints(self, handle: Any, least: Any, most: Any) -> int:
        return _into(least, 200_000) or _into(most, 700_000)

    def _nvmlDeviceGetNumGpuCores(self, handle: Any, out: Any) -> int:
        return _into(out, 16_896) if _at(handle) == BOARD else NOT_SUPPORTED

    def _nvmlDeviceGetMemoryBusWidth(self, handle: Any, out: Any) -> int:
        return _into(out, 6_144) if _at(handle) == BOARD else NOT_SUPPORTED

    def _nvmlDeviceGetPowerUsage(self, handle: Any, out: Any) -> int:
        return _into(out, 124_812)

    def _nvmlDeviceGetTemperatureV(self, handle: Any, out: Any) -> int:
        out._obj.temperature = 33
        return 0

    def _nvmlDeviceGetTemperature(self, handle: Any, sensor: Any, out: Any) -> int:
        return _into(out, 34)

    def _nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, out: Any) -> int:
        return _into(out, 0x404)

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, out: Any) -> int:
        out._obj.gpu, out._obj.memory = 98, 23
        return 0

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, out: Any) -> int:
        out._obj.total, out._obj.used = (150_754_820_096, 644_939_776) if _at(handle) == BOARD else (17_000_000_000, 40_000_000)
        return 0

    def _nvmlDeviceGetMemoryInfo_v2(self, handle: Any, out: Any) -> int:
        out._obj.total, out._obj.reserved, out._obj.used = 150_754_820_096, 644_000_000, 939_776
        return 0

    def _nvmlDeviceGetMigMode(self, handle: Any, now: Any, pending: Any) -> int:
        return _into(now, int(self.mig)) or _into(pending, int(self.mig))

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, out: Any) -> int:
        return _into(out, 7)

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, device: Any) -> int:
        if index.value != 0:
            return NOT_FOUND
        device._obj.contents = device._obj._type_.from_address(INSTANCE)
        return 0

    def _nvmlDeviceGetGpuInstanceId(self, handle: Any, out: Any) -> int:
        return _into(out, 11)

    def _nvmlDeviceGetPersistenceMode(self, handle: Any, out: Any) -> int:
        return _into(out, 1)

    def _nvmlDeviceGetEccMode(self, handle: Any, now: Any, pending: Any) -> int:
        return _into(now, 1) or _into(pending, 1)

    def _nvmlDeviceGetComputeMode(self, handle: Any, out: Any) -> int:
        return _into(out, 3)

    def _nvmlDeviceGetApplicationsClock(self, handle: Any, kind: Any, out: Any) -> int:
        return _into(out, self.application_mhz)

    def _nvmlDeviceGetDefaultApplicationsClock(self, handle: Any, kind: Any, out: Any) -> int:
        return _into(out, 1980)

    def _nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, out: Any) -> int:
        return _into(out, 2_003_054)

    def _nvmlDeviceGetViolationStatus(self, handle: Any, policy: Any, out: Any) -> int:
        out._obj.violationTime = 7_000_000_000 + policy.value
        return 0

    def _nvmlDeviceGetFieldValues(self, handle: Any, number: Any, buffer: Any) -> int:
        for value in (_FIELD_VALUE * number.value).from_buffer(buffer):
            code, kind, raw, stamp = self.fields.get(value.fieldId, (NOT_SUPPORTED, 0, 0, 0))
            value.nvmlReturn, value.valueType, value.value.ullVal, value.timestamp = code, kind, raw, stamp
        return 0

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, number: Any, found: Any) -> int:
        return _listed(self.processes, number, found)

    def _nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: Any, number: Any, found: Any) -> int:
        return _listed([], number, found)

    def _nvmlDeviceGetProcessUtilization(self, handle: Any, found: Any, number: Any, since: Any) -> int:
        if not self.utilization:
            return NOT_FOUND
        room = _room(_SHARE, number, found)
        for entry, (pid, stamp_us, share) in zip(room, self.utilization, strict=False):
            entry.pid, entry.timeStamp, entry.smUtil = pid, stamp_us, share
        return _set_length(number, len(self.utilization), room)

    def _nvmlDeviceGetSamples(self, handle: Any, kind: Any, since: Any, value_type: Any, number: Any, found: Any) -> int:
        newer = [sample for sample in self.samples if sample[0] > since.value]
        if not newer:
            return NOT_FOUND
        room = _room(_SAMPLE, number, found)
        value_type._obj.value, number._obj.value = 1, min(len(newer), len(room)) if found is not None else len(newer)
        for entry, (stamp_us, draw_mw) in zip(room, newer, strict=False):
            entry.timeStamp, entry.sampleValue.uiVal = stamp_us, draw_mw
        return 0

    def _nvmlDeviceGetSupportedEventTypes(self, handle: Any, out: Any) -> int:
        return _into(out, 0xFF9F)

    def _nvmlEventSetCreate(self, out: Any) -> int:
        return 0

    def _nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, event_set: Any) -> int:
        return 0

    def _nvmlEventSetWait_v2(self, event_set: Any, out: Any, timeout_ms: Any) -> int:
        if not self.events:
            return TIMEOUT
        out._obj.eventType, out._obj.eventData = self.events.pop(0)
        out._obj.device = ctypes.cast(ctypes.c_void_p(BOARD), type(out._obj.device))
        return 0

    def _nvmlEventSetFree(self, event_set: Any) -> int:
        return 0

    def _nvmlGpmQueryDeviceSupport(self, handle: Any, out: Any) -> int:
        out._obj.isSupportedDevice = 1
        return 0

    def _nvmlGpmSampleAlloc(self, out: Any) -> int:
        return 0

    def _nvmlGpmSampleFree(self, sample: Any) -> int:
        return 0

    def _nvmlGpmSampleGet(self, handle: Any, sample: Any) -> int:
        return 0

    def _nvmlGpmMetricsGet(self, request: Any) -> int:
        for metric, share in zip(request._obj.metrics, self.gpm[: request._obj.numMetrics], strict=False):
            metric.value, metric.nvmlReturn = share, 0
        return 0


def _at(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _listed(processes: list[tuple[int, int]], number: Any, found: Any) -> int:
    room = _room(_PROCESS, number, found)
    for entry, (pid, memory_bytes) in zip(room, processes, strict=False):
        entry.pid, entry.usedGpuMemory = pid, memory_bytes
    return _set_length(number, len(processes), room)


def _room(structure: Any, number: Any, found: Any) -> Any:
    """Return the caller's buffer as entries of the binding's structure; no entries if the caller only queries the count."""
    return () if found is None else (structure * number._obj.value).from_buffer(found)


def _set_length(number: Any, length: int, room: Any) -> int:
    number._obj.value = length
    return INSUFFICIENT_SIZE if length > len(room) else 0


def nvml(**settings: Any) -> tuple[Nvml, Library]:
    """Return a source, which works until the next call of ``binding``, and its library."""
    library = Library(**settings)
    return Nvml(binding(library)), library


def read(source: Nvml, *names: str, uuid: str = UUID) -> Reading:
    return source.read(uuid, Lane.FAST, names)
