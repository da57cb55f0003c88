"""Which windows a GPU belongs to."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gpuwatch.wire.messages import Shown


def covers(window: Shown, uuid: str, pids: Collection[int]) -> bool:
    """The GPUs it names, else those on which its processes are: ``pids`` are those on this one."""
    return uuid in window.uuids if window.uuids else not set(window.pids).isdisjoint(pids)


def open_windows_on(windows: Iterable[Shown], uuid: str, pids: Collection[int]) -> list[Shown]:
    """The open ones."""
    return [each for each in windows if each.end_ns is None and covers(each, uuid, pids)]
