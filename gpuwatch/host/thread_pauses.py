"""Pauses of the thread that launches work, from the kernel's counters: waits for a CPU, and page faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from annotate.evidence import Pause
from gpuwatch import clock
from gpuwatch.host.processes import PROC, contents

RUN_QUEUE, PAGE_FAULTS = "run-queue", "page-faults"
# An interval between two readings is a pause if one cause filled at least half of it; the exact place inside is unknown.
LEAST_RATIO = 0.5
# Estimates, because kernels count faults without their time: a new page takes at least 0.5 us, one from a disk at least 100 us.
MINOR_FAULT_NS = 500
MAJOR_FAULT_NS = 100_000


@dataclass(frozen=True, slots=True)
class ThreadLook:
    """Counters of one thread, meaningful only as differences."""

    at_ns: int
    waited_ns: int
    minor_faults_count: int
    major_faults_count: int


def look_at(pid: int, thread: int | None = None, *, proc: Path = PROC) -> ThreadLook | None:
    """Return the counters of a process's thread, by default the first; None if the thread is gone or hidden."""
    folder = f"{proc}/{pid}/task/{thread or pid}"
    waited = (contents(f"{folder}/schedstat") or "").split()
    # The name in parentheses may contain spaces and parentheses.
    words = (contents(f"{folder}/stat") or "").rpartition(")")[2].split()
    if len(waited) < 2 or len(words) < 10:
        return None
    return ThreadLook(clock.now_ns(), int(waited[1]), int(words[7]), int(words[9]))


def pause_between(before: ThreadLook, after: ThreadLook) -> Pause | None:
    """Return the pause that filled at least half of the time between two readings; None without such a pause."""
    least_ns = LEAST_RATIO * (after.at_ns - before.at_ns)
    faults_ns = MINOR_FAULT_NS * (after.minor_faults_count - before.minor_faults_count)
    faults_ns += MAJOR_FAULT_NS * (after.major_faults_count - before.major_faults_count)
    for cause, took_ns in ((RUN_QUEUE, after.waited_ns - before.waited_ns), (PAGE_FAULTS, faults_ns)):
        if took_ns >= least_ns > 0:
            return Pause(before.at_ns, after.at_ns, cause)
    return None
