"""A small compiled loop that reads the fast row and the pulse; Python decodes the answers later.

After a pause of milliseconds the CPU caches no longer hold the interpreter, and a pass in Python is slow.
``compiled_loop.c`` is built at installation.  Without a compiler the sampler reads in Python, and the daemon uses 1.7 times
the CPU time (docs/decisions/0053).
"""

import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from annotate.evidence import Lane, Reading
from gpuwatch.errors import DeviceLostError, SourceError
from gpuwatch.interfaces import Pass
from gpuwatch.sources.nvml import fields
from gpuwatch.sources.nvml.binding import GONE_OR_LOST, SUCCESS, Api, treat
from gpuwatch.sources.nvml.questions import Row

LAYOUT = 2  # version of the structures below, as in compiled_loop.c: a library with another version is not used
PASSES_COUNT = 64
_ALIGNED_BYTES = 8

_Value: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Form:
    """The memory for a function's answer: a ctypes type, or the name of one of the binding's structures."""

    kind: Any
    value: _Value = lambda cell: cell  # from the memory to the value that the binding's own function would return
    version: str | None = None  # the binding's constant for a structure's first word; the second holds the requested number


def _plain(cell: Any) -> Any:
    return cell.value


FORMS: Mapping[str, _Form] = {
    "nvmlDeviceGetClockInfo": _Form(ctypes.c_uint, _plain),
    "nvmlDeviceGetCurrentClocksEventReasons": _Form(ctypes.c_ulonglong, _plain),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _Form(ctypes.c_ulonglong, _plain),
    "nvmlDeviceGetTemperature": _Form(ctypes.c_uint, _plain),
    "nvmlDeviceGetTemperatureV": _Form("c_nvmlTemperature_v1_t", lambda cell: cell.temperature, "nvmlTemperature_v1"),
    "nvmlDeviceGetPowerUsage": _Form(ctypes.c_uint, _plain),
    "nvmlDeviceGetUtilizationRates": _Form("c_nvmlUtilization_t"),
    "nvmlDeviceGetMemoryInfo": _Form("c_nvmlMemory_t"),
    "nvmlDeviceGetViolationStatus": _Form("c_nvmlViolationTime_t"),
}


class _Question(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p), ("handle", ctypes.c_void_p), ("has_number", ctypes.c_uint32),
        ("number", ctypes.c_uint32), ("offset", ctypes.c_uint32), ("pad", ctypes.c_uint32),
    ]  # fmt: skip


class _Row(ctypes.Structure):
    _fields_ = [
        ("questions", ctypes.POINTER(_Question)), ("blank", ctypes.c_void_p), ("questions_count", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
    ]  # fmt: skip


class _Pass(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("due_ns", "begin_ns", "end_ns", "missed_count", "is_pulse")]


class _Loop(ctypes.Structure):
    _fields_ = [
        ("row", _Row), ("pulse", _Row), ("ends", ctypes.c_uint64), ("passes", ctypes.POINTER(_Pass)),
        ("codes", ctypes.POINTER(ctypes.c_int32)), ("answers", ctypes.c_void_p), ("passes_count", ctypes.c_uint32),
        ("codes_count", ctypes.c_uint32), ("answers_bytes", ctypes.c_uint32), ("has_last_pulse", ctypes.c_uint32),
        ("wake_fd", ctypes.c_int32), ("pad2", ctypes.c_int32), ("asking_since_ns", ctypes.c_int64),
    ]  # fmt: skip


class UnfitError(Exception):
    """The reason why the compiled loop cannot read a row."""


class _LoopRow:
    """One row in the loop's layout: the calls, and the decoding of their answers.  Raises UnfitError."""

    def __init__(self, api: Api, uuid: str, lane: Lane, row: Row) -> None:
        self._api, self._uuid, self.lane, self._batch = api, uuid, lane, row.batch
        if row.gpm is not None:
            raise UnfitError("only Python reads means over an interval")
        self._answers: list[tuple[int, Any, _Value, Sequence[tuple[str, _Value]]]] = []  # offset, type, value, receivers
        questions, blank = [], b""
        for call, takers in row.steps:
            name, handle, number = _parts(call)
            form = FORMS[name]
            kind = getattr(api, form.kind) if isinstance(form.kind, str) else form.kind
            self._answers.append((len(blank), kind, form.value, takers))
            cell = kind()
            if form.version is not None:
                cell.version, cell.sensorType = getattr(api, form.version), number
                number = None
            questions.append(_question(api, name, handle, number, len(blank)))
            blank += _padded(bytes(cell))
        self._batch_offset = len(blank)
        if row.batch is not None:
            questions.append(_question(api, fields.FUNCTION, row.batch.handle, row.batch.count, len(blank)))
            blank += _padded(row.batch.template)
        self._questions, self._blank = (_Question * len(questions))(*questions), ctypes.create_string_buffer(blank, len(blank))
        self.count, self.bytes = len(questions), len(blank)

    def row(self) -> _Row:
        return _Row(self._questions, ctypes.addressof(self._blank), self.count, self.bytes)

    def read(self, codes: Sequence[int], answers: ctypes.Array[ctypes.c_uint8], begin: int) -> dict[str, Any]:
        """Return the answers as ``Row.ask`` returns them.  Raises DeviceLostError, SourceGoneError."""
        values: dict[str, Any] = {}
        for code, (offset, kind, value, takers) in zip(codes, self._answers, strict=False):
            if code != SUCCESS:
                treat(self._api.NVMLError(code), self._uuid)
                continue
            answer = value(kind.from_buffer(answers, begin + offset))
            for name, take in takers:
                values[name] = take(answer)
        if self._batch is not None:
            if (code := codes[len(self._answers)]) != SUCCESS:
                treat(self._api.NVMLError(code), self._uuid)
            else:
                at = begin + self._batch_offset
                self._batch.read(bytes(answers[at : at + len(self._batch.template)]), values)
        return values


class CompiledLoop:
    """The loop of one GPU.  One thread runs the loop.  Any thread may interrupt it, or read when a pending call started."""

    def __init__(self, library: ctypes.CDLL, api: Api, uuid: str, row: Row, pulse: Row, lost: Callable[[], None]) -> None:
        self._lost = lost  # called when the GPU is lost and its handle is invalid
        self._run = library.gpuwatch_compiled_loop
        self._uuid = uuid
        self._row, self._pulse = _LoopRow(api, uuid, Lane.FAST, row), _LoopRow(api, uuid, Lane.PULSE, pulse)
        both = (self._row, self._pulse)
        self._codes_count, self._answers_bytes = max(each.count for each in both), max(each.bytes for each in both)
        self._passes = (_Pass * PASSES_COUNT)()
        # One slot more than passes: it holds the last pulse's answers while the GPU rests.
        self._codes = (ctypes.c_int32 * ((PASSES_COUNT + 1) * self._codes_count))()
        self._answers = (ctypes.c_uint8 * ((PASSES_COUNT + 1) * self._answers_bytes))()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._wake_fd)
        self._loop = _Loop(
            row=self._row.row(),
            pulse=self._pulse.row(),
            ends=sum(1 << code for code in GONE_OR_LOST),
            passes=self._passes,
            codes=self._codes,
            answers=ctypes.addressof(self._answers),
            passes_count=PASSES_COUNT,
            codes_count=self._codes_count,
            answers_bytes=self._answers_bytes,
            wake_fd=self._wake_fd,
        )

    @property
    def asking_since_ns(self) -> int | None:
        return self._loop.asking_since_ns or None

    def interrupt(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def run(
        self, due_ns: int, until_ns: int, period_ns: int, *, row_at_ns: int, row_after_ns: int, is_resting: bool = False
    ) -> tuple[Sequence[Pass], SourceError | None]:
        count = self._run(ctypes.byref(self._loop), due_ns, max(1, period_ns), until_ns, row_at_ns, row_after_ns, is_resting)
        passes: list[Pass] = []
        try:
            passes.extend(self._read(count))
        except SourceError as error:
            if isinstance(error, DeviceLostError):
                self._lost()
            return passes, error
        return passes, None

    def _read(self, count: int) -> Iterator[Pass]:
        for i in range(count):
            done = self._passes[i]
            asked = self._pulse if done.is_pulse else self._row
            codes = self._codes[i * self._codes_count : i * self._codes_count + asked.count]
            values = asked.read(codes, self._answers, i * self._answers_bytes)
            took_ns = done.end_ns - done.begin_ns
            reading = Reading(uuid=self._uuid, lane=asked.lane, at_ns=done.end_ns, took_ns=took_ns, **values)
            yield Pass(done.due_ns, done.begin_ns - done.due_ns, done.missed_count, reading)


def open_loop(api: Api, uuid: str, row: Row, pulse: Row, lost: Callable[[], None]) -> CompiledLoop | None:
    """Return the loop for two rows of a GPU; None without a usable library, and for rows that only Python can read.

    Raises OSError: when no descriptor is free.
    """
    library, _ = compiled()
    try:
        return None if library is None else CompiledLoop(library, api, uuid, row, pulse, lost)
    except UnfitError:
        return None


@functools.cache
def compiled(folder: Path = Path(__file__).parent) -> tuple[ctypes.CDLL | None, str]:
    """Return the library built at installation and an empty text, or None and the reason."""
    why = "it was not built: no C compiler was found when gpuwatch was installed; install gcc, then reinstall gpuwatch"
    for path in sorted(folder.glob("_compiled_loop*.so")):
        try:
            library = ctypes.CDLL(str(path))
            if ctypes.c_uint32.in_dll(library, "gpuwatch_compiled_loop_layout").value != LAYOUT:
                why = f"{path.name} belongs to another version of gpuwatch: reinstall gpuwatch"
                continue
        except (OSError, ValueError) as error:
            why = f"{path.name} cannot be loaded: {error}"
            continue
        library.gpuwatch_compiled_loop.argtypes = (ctypes.c_void_p, *(ctypes.c_int64,) * 6)
        library.gpuwatch_compiled_loop.restype = ctypes.c_uint32
        return library, ""
    return None, why


def _parts(call: Callable[[], Any]) -> tuple[str, Any, int | None]:
    """Return function, handle and number (None without one) of a bound call of the binding.  Raises UnfitError."""
    if not isinstance(call, partial) or getattr(call.func, "__name__", "") not in FORMS or len(call.args) > 2:
        raise UnfitError(f"only Python makes the call {call}")
    return call.func.__name__, call.args[0], call.args[1] if len(call.args) > 1 else None


def _question(api: Api, name: str, handle: Any, number: int | None, offset: int) -> _Question:
    try:
        function = ctypes.cast(api._nvmlGetFunctionPointer(name), ctypes.c_void_p).value  # noqa: SLF001 - as in fields.py
        address = ctypes.cast(handle, ctypes.c_void_p).value
    except ctypes.ArgumentError as error:
        raise UnfitError(f"{name} is not a library function") from error
    return _Question(function, address, number is not None, number or 0, offset)


def _padded(answer: bytes) -> bytes:
    return answer + bytes(-len(answer) % _ALIGNED_BYTES)
