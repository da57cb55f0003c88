"""The processes on a GPU, by the driver's process lists and its utilisation record."""

from __future__ import annotations

from annotate.evidence import Process, Visibility
from gpuwatch.host.processes import Identities, Identity
from gpuwatch.sources.nvml.binding import NOT_FOUND, Api, Handle, treat
from gpuwatch.sources.nvml.process_lists import Lists

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
        """Return every process that is named, by PID, and whether the list of compute processes answered.

        Raises DeviceLostError, SourceGoneError.
        """
        listed: dict[int, tuple[int | None, bool]] = {}
        whole = True
        for function, graphics in _LISTS:
            entries = self._list(function)
            # Other lists are missing on many systems; without this one an empty census says nothing.
            whole = whole and not (entries is None and function == _COMPUTE)
            for pid, memory_bytes in entries or ():
                memory, was_graphics = listed.get(pid, (None, True))
                # A process on two lists is told the same memory twice; it counts as graphics only if nothing else lists it.
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
        # Outside the initial PID namespace an unlisted PID is the machine's: the process of that number here is another one.
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
        """Share of time each process kept SMs busy since the last call; the first call only sets the cursor."""
        first, cursor_us = self._cursor_us is None, self._cursor_us or 0
        try:
            samples = self._lists.utilization(cursor_us)
        except self._api.NVMLError as error:
            if error.value != NOT_FOUND:  # no samples, for which SUCCESS and none is the other spelling
                treat(error, self._uuid)
            self._cursor_us = cursor_us
            return {}
        latest: dict[int, tuple[int, int]] = {}
        for pid, stamp_us, share in samples:
            # The record repeats old entries, and now and then holds garbage above 100 %.
            if stamp_us > cursor_us and share <= 100 and stamp_us > latest.get(pid, (0, 0))[0]:
                latest[pid] = (stamp_us, share)
        self._cursor_us = max([cursor_us, *(stamp_us for stamp_us, _ in latest.values())])
        # Without a cursor the driver averages its whole record, processes that ended long ago included.
        return {} if first else {pid: share / 100 for pid, (_, share) in latest.items()}
