"""The windows of a GPU: the owners of its processes, and the hazards seen so far in open windows.

The hazards are not a verdict: an unseen hazard may still exist.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from annotate.evidence import Lane, Ownership, Process, Reason
from gpuwatch.tui.text import words
from gpuwatch.view.live import Live, LiveGpu
from gpuwatch.wire.shown import Shown

# Reasons that spoil a number; the power cap, normal for a heavy kernel, comes last.
_AGAINST: tuple[Reason, ...] = (
    Reason.HW_POWER_BRAKE, Reason.HW_THERMAL, Reason.SW_THERMAL, Reason.HW_SLOWDOWN, Reason.SYNC_BOOST, Reason.SW_POWER_CAP,
)  # fmt: skip
_FOREIGN, _LOST = "foreign process", "GPU lost"
_ORDER = (_LOST, _FOREIGN, *(words.CHIPS[reason].name for reason in _AGAINST))


def is_window_on(window: Shown, uuid: str, pids: Collection[int]) -> bool:
    """Return True if the window names this GPU, or names no GPU and has a process in ``pids``, the processes on this GPU."""
    return uuid in window.uuids if window.uuids else not set(window.pids).isdisjoint(pids)


def open_windows_on(windows: Iterable[Shown], uuid: str, pids: Collection[int]) -> list[Shown]:
    return [each for each in windows if each.end_ns is None and is_window_on(each, uuid, pids)]


def owned_processes(gpu: LiveGpu, windows: Iterable[Shown]) -> list[tuple[Process, Ownership]]:
    """Return the GPU's processes and their owners, as recorded or else by the windows open on this GPU."""
    processes = gpu.process_list.processes if gpu.process_list is not None else ()
    opened = open_windows_on(windows, gpu.device.uuid, {process.pid for process in processes})
    owners = [each.pids for each in opened if each.pids]

    def owner(process: Process) -> Ownership:
        if process.ownership is not Ownership.UNKNOWN or not owners:
            return process.ownership
        return Ownership.OWN if any(process.pid in each for each in owners) else Ownership.FOREIGN

    return [(process, owner(process)) for process in processes]


class OpenWindowHazards:
    """The hazards of each open window, accumulated over live answers."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def add_live(self, live: Live) -> None:
        opened = [window for window in live.windows if window.end_ns is None]
        self._seen = {window.run: self._seen.get(window.run, set()) | set(_found(window, live.gpus)) for window in opened}

    def names(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the hazards by run, gravest first."""
        return {run: [name for name in _ORDER if name in seen] for run, seen in self._seen.items() if seen}


def _found(window: Shown, gpus: Sequence[LiveGpu]) -> Iterator[str]:
    """Yield the hazards in one answer; rows and process lists from before the window do not count."""
    for gpu in gpus:
        pids = {process.pid for process in gpu.process_list.processes} if gpu.process_list is not None else set()
        if not is_window_on(window, gpu.device.uuid, pids):
            continue
        if gpu.lost is not None:
            yield _LOST
        row = gpu.rows.get(Lane.FAST)
        if row is not None and row.at_ns >= window.begin_ns:
            yield from (words.CHIPS[reason].name for reason in _AGAINST if (row.event_reasons_mask or 0) & reason)
        known = gpu.process_list is not None and gpu.process_list.at_ns >= window.begin_ns and window.pids
        if known and pids - set(window.pids):
            yield _FOREIGN
