"""Field values: one call for many numbered readings, decoded and checked entry by entry."""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gpuwatch.sources.nvml.binding import SUCCESS, Api, Handle, treat

# nvmlFieldValue_t: id, scope, timestamp us, latency us, value type, return code, and a union of eight bytes.  Defined here
# because pynvml's Structure runs slow Python code at every attribute.
_ENTRY = struct.Struct("=IIqqIIQ")
_UNSIGNED_LONG_LONG = 3
_DOUBLE = struct.Struct("=d")
_WHOLE = struct.Struct("=Q")

FUNCTION = "nvmlDeviceGetFieldValues"

Entry: TypeAlias = tuple[int, int, int, int]
Wanted: TypeAlias = tuple[str, tuple[int, ...], Callable[[Any], Any]]


def decoded(kind: int, raw: int) -> float | int | None:
    """Decode a union of eight bytes by its value type (nvmlValueType_t); None for an unknown type."""
    match kind:
        case 1:
            return raw & 0xFFFF_FFFF
        case 2 | 3:
            return raw
        case 0:
            return float(_DOUBLE.unpack(_WHOLE.pack(raw))[0])
        case 4:
            return raw - (1 << 64) if raw >> 63 else raw
        case 5:
            return (raw & 0xFFFF_FFFF) - (1 << 32) if raw & 0x8000_0000 else raw & 0xFFFF_FFFF
        case 6:
            return raw & 0xFFFF
        case _:
            return None


class FieldBatch:
    """A fixed set of fields of one GPU.  A batch costs the sum of its fields, so each lane has its own batch."""

    def __init__(self, api: Api, uuid: str, handle: Handle, wanted: Sequence[Wanted]) -> None:
        self._api = api
        self._uuid = uuid
        self.handle = handle
        self._wanted = tuple(wanted)
        ids = [field for _, fields, _ in wanted for field in fields]
        self.template = b"".join(_ENTRY.pack(field, 0, 0, 0, 0, 0, 0) for field in ids)  # in the driver's layout
        self.count = len(ids)
        self._buffer = ctypes.c_char * len(self.template)

    def entries(self) -> list[Entry]:
        """Return (return code, timestamp us, value type, raw value) of every field.

        Raises NVMLError: when the whole call fails.
        """
        # A new buffer for each call: a window's edge may read the same batch from another thread.
        buffer = self._buffer.from_buffer_copy(self.template)
        ask = self._api._nvmlGetFunctionPointer(FUNCTION)  # noqa: SLF001 - the binding's lookup of functions
        code = ask(self.handle, ctypes.c_int(self.count), buffer)
        if code != SUCCESS:
            raise self._api.NVMLError(code)
        return _entries(buffer.raw)

    def ask(self, values: dict[str, Any]) -> None:
        """Read the fields, and store each answer in ``values`` under the signal's name."""
        try:
            entries = self.entries()
        except self._api.NVMLError as error:
            treat(error, self._uuid)
            return
        self._store(entries, values)

    def read(self, answer: bytes, values: dict[str, Any]) -> None:
        """Decode an answer of the driver, and store the fields in ``values``."""
        self._store(_entries(answer), values)

    def _store(self, entries: Sequence[Entry], values: dict[str, Any]) -> None:
        at = 0
        for name, fields, take in self._wanted:
            total: float | int | None = 0
            for code, filled_us, kind, raw in entries[at : at + len(fields)]:
                if code != SUCCESS:
                    treat(self._api.NVMLError(code), self._uuid)
                    total = None
                # Success with a timestamp of 0 means that the driver stored no value (docs/HARDWARE.md).
                elif filled_us == 0 or (value := decoded(kind, raw)) is None:
                    total = None
                elif total is not None:
                    total += value
            at += len(fields)
            if total is not None:
                values[name] = take(total)


def _entries(answer: bytes) -> list[Entry]:
    return [(entry[5], entry[2], entry[4], entry[6]) for entry in _ENTRY.iter_unpack(answer)]


def answers(api: Api, uuid: str, handle: Handle, ids: Sequence[int], *, kind: int | None = None) -> bool:
    """Return True if the GPU answers all these fields, and with value type ``kind`` if given."""
    try:
        entries = FieldBatch(api, uuid, handle, [("", tuple(ids), abs)]).entries()
    except api.NVMLError as error:
        treat(error, uuid)
        return False
    return all(code == SUCCESS and filled_us != 0 and kind in (None, entry_kind) for code, filled_us, entry_kind, _ in entries)


def slowdown_counters(api: Api, uuid: str, handle: Handle, driver_version: str | None) -> tuple[int, int, int] | None:
    """Return the field ids of software-thermal, hardware-thermal and power-brake time; None unless the driver answers all.

    The ids are 269-271, or on drivers 575 to 589 also 251-253, which mean power smoothing from 590 on.  The version alone
    does not decide (580.159.04 answers 269-271), so this function first tries 269-271.  Only 64-bit answers count.
    """
    if answers(api, uuid, handle, (269, 270, 271), kind=_UNSIGNED_LONG_LONG):
        return (269, 270, 271)
    major = (driver_version or "").partition(".")[0]
    known = major.isdigit() and 575 <= int(major) < 590
    if known and answers(api, uuid, handle, (251, 252, 253), kind=_UNSIGNED_LONG_LONG):
        return (251, 252, 253)
    return None
