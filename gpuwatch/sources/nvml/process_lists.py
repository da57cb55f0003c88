"""The driver's lists, normally read in one call, and the processes of a GPU from those lists.

NVIDIA's binding makes two calls for every list, the first only for the length (docs/decisions/0072).
"""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from annotate.evidence import Process, Visibility
from gpuwatch.host.processes import Identities, Identity
from gpuwatch.sources.nvml.binding import INSUFFICIENT_SIZE, NOT_FOUND, SUCCESS, Api, Handle, treat

# Defined here for the reason given in ``fields``.  The layouts depend on the functions' versions, not on the binding.
_PROCESS = struct.Struct("=I4xQII")  # nvmlProcessInfo_v2_t, and _v3: PID, bytes of memory, GPU and compute instance
_SHARE = struct.Struct("=I4xQIIII")  # nvmlProcessUtilizationSample_t: PID, stamp us, percent of SM, memory, encoder, decoder
_SAMPLE = struct.Struct("=QQ")  # nvmlSample_t: stamp us, and a union of eight bytes
_NOT_AVAILABLE = (1 << 64) - 1

UTILIZATION, SAMPLES = "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples"
_SLACK, _MOST = 32, 1 << 14  # extra entries for processes that start between two reads; the longest list that is read


class Lists:
    """The lists of one GPU or MIG instance, as plain numbers.  All methods raise NVMLError, also for a missing function.

    Each call has its own buffer, because two threads may read the same list.
    """

    def __init__(self, api: Api, handle: Handle) -> None:
        self._api = api
        self._handle = handle
        self._rooms: dict[str, int] = {}  # by function: the size of an enlarged buffer, in entries

    def processes(self, function: str) -> list[tuple[int, int | None]]:
        """Return PID and bytes of memory (None if not available) from one of the lists of running processes."""
        entries = self._asked(function, _PROCESS, 64, lambda ask, count, found: ask(self._handle, count, found))
        return [(pid, None if memory == _NOT_AVAILABLE else memory) for pid, memory, _, _ in entries]

    def utilization(self, since_us: int) -> list[tuple[int, int, int]]:
        """Return PID, stamp and percent of SM time from the utilisation record; entries older than ``since_us`` may occur."""
        since = ctypes.c_ulonglong(since_us)
        entries = self._asked(UTILIZATION, _SHARE, 256, lambda ask, count, found: ask(self._handle, found, count, since))
        return [(pid, stamp_us, percent) for pid, stamp_us, percent, *_ in entries]

    def samples(self, sampling: int, since_us: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the value type (see ``fields.decoded``), and stamp and raw value of each newer sample of a record."""
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
        """Read a list, with a larger buffer if needed.

        ``cuts``: the driver truncates a long list without an error, so a full buffer means "read again".
        """
        ask = self._api._nvmlGetFunctionPointer(function)  # noqa: SLF001 - the binding's lookup of functions
        room = self._rooms.get(function, room)
        while True:
            found, count = ctypes.create_string_buffer(room * entry.size), ctypes.c_uint(room)
            code = call(ask, ctypes.byref(count), found)
            if code not in (SUCCESS, INSUFFICIENT_SIZE):
                raise self._api.NVMLError(code)
            listed_count = count.value
            if code == SUCCESS and (listed_count < room or (listed_count == room and not cuts) or room == _MOST):
                return list(entry.iter_unpack(ctypes.string_at(found, min(listed_count, room) * entry.size)))
            if room == _MOST:
                raise self._api.NVMLError(code)
            room = self._rooms[function] = min(max(2 * room, listed_count + _SLACK), _MOST)


_COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
_LISTS = (
    (_COMPUTE, False),
    ("nvmlDeviceGetMPSComputeRunningProcesses_v3", False),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", True),
)


class ProcessLists:
    """The processes of one GPU or MIG instance, with a cursor into its utilisation record."""

    def __init__(self, api: Api, uuid: str, handle: Handle, identities: Identities, visibility: Visibility) -> None:
        self._api = api
        self._uuid = uuid
        self._lists = Lists(api, handle)
        self._identities = identities
        self._visibility = visibility
        self._cursor_us: int | None = None

    def processes(self, *, utilization: bool) -> tuple[tuple[Process, ...], bool]:
        """Return the processes in order of PID, and True if the driver answered the list of compute processes.

        With ``utilization``, the processes include unlisted ones that used the GPU.

        Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
        """
        listed: dict[int, tuple[int | None, bool]] = {}
        whole = True
        for function, graphics in _LISTS:
            entries = self._list(function)
            # Many systems lack the other lists; without the compute list, the result is incomplete.
            whole = whole and not (entries is None and function == _COMPUTE)
            for pid, memory_bytes in entries or ():
                memory, was_graphics = listed.get(pid, (None, True))
                # A process on two lists has the same memory in both; it is a graphics process only if no other list names it.
                listed[pid] = (memory_bytes if memory is None else memory, graphics and was_graphics)
        busy = self._utilization() if utilization else {}
        found = [
            self._process(pid, busy.get(pid), memory_bytes=memory, graphics=graphics)
            for pid, (memory, graphics) in listed.items()
        ]
        found += [self._process(pid, ratio, listed=False) for pid, ratio in busy.items() if pid not in listed and ratio > 0]
        return tuple(sorted(found, key=lambda process: process.pid)), whole

    def _list(self, function: str) -> list[tuple[int, int | None]] | None:
        try:
            return self._lists.processes(function)
        except self._api.NVMLError as error:
            treat(error, self._uuid)
            return None

    def _process(
        self, pid: int, ratio: float | None, *, memory_bytes: int | None = None, graphics: bool = False, listed: bool = True
    ) -> Process:
        # Outside the initial PID namespace an unlisted PID is the host's, and this namespace may use it for another process.
        who = self._identities.of(pid) if listed or self._visibility == Visibility.HOST else Identity()
        return Process(
            pid=pid,
            name=who.name,
            user=who.user,
            started_s=who.started_s,
            memory_bytes=memory_bytes,
            utilization_ratio=ratio,
            graphics=graphics,
            listed=listed,
        )

    def _utilization(self) -> dict[int, float]:
        """Return each process's newest share of SM time since the last call; the first call only sets the cursor."""
        first, cursor_us = self._cursor_us is None, self._cursor_us or 0
        try:
            samples = self._lists.utilization(cursor_us)
        except self._api.NVMLError as error:
            if error.value == NOT_FOUND:  # no samples
                self._cursor_us = cursor_us
            else:
                treat(error, self._uuid)
            return {}
        latest: dict[int, tuple[int, int]] = {}
        for pid, stamp_us, share in samples:
            # The record repeats old entries, and can hold invalid shares above 100 %.
            if stamp_us > cursor_us and share <= 100 and stamp_us > latest.get(pid, (0, 0))[0]:
                latest[pid] = (stamp_us, share)
        self._cursor_us = max([cursor_us, *(stamp_us for stamp_us, _ in latest.values())])
        # Without a cursor the driver averages its whole record, which includes ended processes.
        return {} if first else {pid: share / 100 for pid, (_, share) in latest.items()}
