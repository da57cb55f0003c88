"""The windows of a GPU, and the owners of its processes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from annotate.evidence import Ownership, Process
from gpuwatch.wire.messages import Shown


def is_window_on(window: Shown, uuid: str, pids: Collection[int]) -> bool:
    """Return True for a GPU the window names, or, if it names none, one of its processes is on: ``pids`` are on this GPU."""
    return uuid in window.uuids if window.uuids else not set(window.pids).isdisjoint(pids)


def open_windows_on(windows: Iterable[Shown], uuid: str, pids: Collection[int]) -> list[Shown]:
    """Return the open windows on this GPU."""
    return [each for each in windows if each.end_ns is None and is_window_on(each, uuid, pids)]


def process_owner(process: Process, uuid: str, pids: Collection[int], windows: Iterable[Shown]) -> Ownership:
    """Return own or foreign as seen from the windows open on this GPU; unknown while there is none."""
    if process.ownership is not Ownership.UNKNOWN:
        return process.ownership
    owners = [each.pids for each in open_windows_on(windows, uuid, pids) if each.pids]
    if not owners:
        return Ownership.UNKNOWN
    return Ownership.OWN if any(process.pid in each for each in owners) else Ownership.FOREIGN
