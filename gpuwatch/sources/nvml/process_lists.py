"""The driver's lists, each in one call: the binding asks for every one twice, first for its length alone."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from gpuwatch.sources.nvml.binding import INSUFFICIENT_SIZE, SUCCESS, Api, Handle

# Laid out here for the reason given in ``fields``; these are fixed by the functions' names and do not vary with the binding.
_PROCESS = struct.Struct("=I4xQII")  # nvmlProcessInfo_v2_t, of _v3 too: PID, bytes of memory, GPU and compute instance
_SHARE = struct.Struct("=I4xQIIII")  # nvmlProcessUtilizationSample_t: PID, stamp us, percent of SM, memory, encoder, decoder
_SAMPLE = struct.Struct("=QQ")  # nvmlSample_t: stamp us, and a union of eight bytes
_NOT_AVAILABLE = (1 << 64) - 1

UTILIZATION, SAMPLES = "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples"
_SLACK, _MOST = 32, 1 << 14  # entries more than were told of, for those to come; no list of a driver in its senses is longer


class Lists:
    """The lists of one GPU or MIG instance, as plain numbers.  All raise NVMLError, also where a function is missing.

    Each asking has a buffer of its own: two threads may ask for the same list.
    """

    def __init__(self, api: Api, handle: Handle) -> None:
        self._api = api
        self._handle = handle
        self._rooms: dict[str, int] = {}  # by function: what was too small once is not tried again

    def processes(self, function: str) -> list[tuple[int, int | None]]:
        """PID and bytes of memory, None where the driver does not know them, of one of the lists of running processes."""
        entries = self._asked(function, _PROCESS, 64, lambda ask, count, found: ask(self._handle, count, found))
        return [(pid, None if memory == _NOT_AVAILABLE else memory) for pid, memory, _, _ in entries]

    def utilization(self, since_us: int) -> list[tuple[int, int, int]]:
        """PID, stamp and percent of SM time, of whatever the utilisation record holds; it may hold older entries too."""
        since = ctypes.c_ulonglong(since_us)
        entries = self._asked(UTILIZATION, _SHARE, 256, lambda ask, count, found: ask(self._handle, found, count, since))
        return [(pid, stamp_us, percent) for pid, stamp_us, percent, *_ in entries]

    def samples(self, sampling: int, since_us: int) -> tuple[int, list[tuple[int, int]]]:
        """The value type (see ``fields.decoded``), and stamp and raw value of each sample of a record newer than that."""
        kind, since = ctypes.c_uint(), ctypes.c_ulonglong(since_us)
        entries = self._asked(
            SAMPLES,
            _SAMPLE,
            128,
            lambda ask, count, found: ask(self._handle, ctypes.c_int(sampling), since, ctypes.byref(kind), count, found),
            cuts=True,
        )
        return kind.value, entries

    def _asked(
        self, function: str, entry: struct.Struct, room: int, call: Callable[[Any, Any, Any], int], *, cuts: bool = False
    ) -> list[Any]:
        """``cuts``: a list longer than its room is no error but cut off, so a full one is asked for with more room."""
        ask = self._api._nvmlGetFunctionPointer(function)  # noqa: SLF001 - the binding's own way in
        room = self._rooms.get(function, room)
        while True:
            found, count = ctypes.create_string_buffer(room * entry.size), ctypes.c_uint(room)
            code = call(ask, ctypes.byref(count), found)
            if code not in (SUCCESS, INSUFFICIENT_SIZE):
                raise self._api.NVMLError(code)
            told = count.value
            if code == SUCCESS and (told < room or (told == room and not cuts) or room == _MOST):
                return list(entry.iter_unpack(ctypes.string_at(found, min(told, room) * entry.size)))
            if room == _MOST:
                raise self._api.NVMLError(code)
            room = self._rooms[function] = min(max(2 * room, told + _SLACK), _MOST)
