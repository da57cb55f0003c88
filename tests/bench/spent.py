"""CPU time and memory of a program and its children, measured from outside."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil


@dataclass
class Spent:
    """A measured stretch of time: its length, a program's CPU time, and the program's memory at the end."""

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
    """Return a process's CPU time to the nanosecond: at 1 % of a core, psutil's tick of 10 ms takes a second."""
    return time.clock_gettime((~pid << 3) | 2)  # the formula of clock_getcpuclockid()


@contextlib.contextmanager
def spending(pid: int) -> Iterator[Spent]:
    """Measure the cost during the body, without children that start or end during the body."""
    found, members = Spent(), family(pid)
    before = {each.pid: cpu_s(each.pid) for each in members}
    begin_s = time.monotonic()
    yield found
    found.length_s = time.monotonic() - begin_s
    for each in members:
        with contextlib.suppress(OSError, psutil.Error):
            found.cpu_s += cpu_s(each.pid) - before[each.pid]
            found.memory_bytes += each.memory_info().rss
