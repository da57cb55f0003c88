"""Processor time and memory of a program and its children, looked at from outside."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil


@dataclass
class Spent:
    """Of a stretch of time: its length, and what a program used of one core; its memory at the end of it."""

    length_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0

    @property
    def cpu_ratio(self) -> float:
        return self.cpu_s / self.length_s


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def cpu_s(pid: int) -> float:
    """To the nanosecond: the ticks that psutil reads are 10 ms, a whole second of a watcher that takes 1 %."""
    return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid() makes it


@contextlib.contextmanager
def spending(pid: int) -> Iterator[Spent]:
    """What it spends in the body; children that begin or end meanwhile count for nothing."""
    found, members = Spent(), family(pid)
    before = {each.pid: cpu_s(each.pid) for each in members}
    begin_s = time.monotonic()
    yield found
    found.length_s = time.monotonic() - begin_s
    for each in members:
        with contextlib.suppress(OSError, psutil.Error):
            found.cpu_s += cpu_s(each.pid) - before[each.pid]
            found.memory_bytes += each.memory_info().rss
