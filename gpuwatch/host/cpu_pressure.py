"""The kernel's counters of a process tree's competition for CPUs."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from annotate.evidence import Host
from gpuwatch import clock
from gpuwatch.host.processes import PROC, contents, names

# Share of a tree's CPU time: a root process with a smaller share only started the other processes.
_LAUNCHER_RATIO = 0.1
# CPU time per wall time: in a less active tree, such as a sleeping command, the root's share has no meaning.
_ASLEEP_RATIO = 0.01
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_TICKS_OF_STAT = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """A snapshot of the allowed CPUs, and of counters that are meaningful only as differences."""

    at_ns: int
    threads: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # thread id -> (ran ns, waited to run ns)
    owners: Mapping[int, int] = field(default_factory=dict)  # thread id -> its process
    cgroup_throttled_ns: int | None = None
    ticks: Mapping[str, int] = field(default_factory=dict)  # of the whole machine, by state
    psi_some_ns: int | None = None
    cpu_allowed_count: int | None = None
    numa_nodes: str | None = None  # of the allowed CPUs
    wall_offset_ns: int | None = None  # wall time minus monotonic time; a set wall clock and a suspension change it
    watcher_cpu_s: float | None = None  # CPU time of the process that took this snapshot


def pressure(
    pids: Iterable[int],
    *,
    proc: Path = PROC,
    sys: Path = Path("/sys"),
    cgroups: Path = Path("/sys/fs/cgroup"),
    there_by_ns: int | None = None,
) -> Pressure:
    """Read these processes and their machine.  The control group and the affinity are the first PID's.

    Threads that started after ``there_by_ns`` are left out.  A snapshot some milliseconds after a window's start would
    otherwise count the window's own new threads as older than the window.
    """
    pids = list(pids)
    threads: dict[int, tuple[int, int]] = {}
    owners: dict[int, int] = {}
    for pid in pids:
        own = _threads(pid, proc)
        if there_by_ns is not None:
            own = {thread: times for thread, times in own.items() if not _began_after(there_by_ns, pid, thread, proc)}
        threads.update(own)
        owners.update(dict.fromkeys(own, pid))
    first = pids[0] if pids else None
    allowed = _allowed(first, proc) if first is not None else None
    return Pressure(
        at_ns=clock.now_ns(),
        threads=threads,
        owners=owners,
        cgroup_throttled_ns=_throttled_ns(first, proc, cgroups) if first is not None else None,
        ticks=_ticks(proc),
        psi_some_ns=_psi_some_ns(proc),
        cpu_allowed_count=len(allowed) if allowed is not None else None,
        numa_nodes=_numa_nodes(allowed, sys) if allowed is not None else None,
        wall_offset_ns=clock.wall_offset_ns(),
        watcher_cpu_s=clock.process_cpu_s(),
    )


def _threads(pid: int, proc: Path) -> dict[int, tuple[int, int]]:
    folder = f"{proc}/{pid}/task"
    found: dict[int, tuple[int, int]] = {}
    for name in names(folder):
        words = (contents(f"{folder}/{name}/schedstat") or "").split()
        if len(words) >= 2:
            found[int(name)] = (int(words[0]), int(words[1]))
    return found


def _began_after(at_ns: int, pid: int, thread: int, proc: Path) -> bool:
    """Return True if a thread started after this time, or less than a tick (10 ms) before.

    Return False if the thread is gone.
    """
    # The name in parentheses may contain spaces and parentheses; the start time is the 20th word after it.
    words = (contents(f"{proc}/{pid}/task/{thread}/stat") or "").rpartition(")")[2].split()
    if len(words) < 20:
        return False
    return (int(words[19]) + 1) * _TICK_NS > at_ns + clock.boot_offset_ns()


def _throttled_ns(pid: int, proc: Path, cgroups: Path) -> int | None:
    """Return a control group's throttled time, of version 2 or 1; None without it."""
    for line in (contents(proc / str(pid) / "cgroup") or "").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        path = path.lstrip("/")
        if number == "0" and not controllers:
            folders, key, unit_ns = (cgroups / path, cgroups / "unified" / path), "throttled_usec", 1000
        elif "cpu" in controllers.split(","):
            folders, key, unit_ns = (cgroups / controllers / path, cgroups / "cpu" / path), "throttled_time", 1
        else:
            continue
        for folder in folders:
            stat = dict(row.split(maxsplit=1) for row in (contents(folder / "cpu.stat") or "").splitlines() if " " in row)
            if key in stat:
                return int(stat[key]) * unit_ns
    return None


def _ticks(proc: Path) -> dict[str, int]:
    words = (contents(proc / "stat") or "").partition("\n")[0].split()
    if not words or words[0] != "cpu":
        return {}
    return dict(zip(_TICKS_OF_STAT, map(int, words[1:]), strict=False))


def _psi_some_ns(proc: Path) -> int | None:
    for line in (contents(proc / "pressure/cpu") or "").splitlines():
        total = line.rpartition("total=")[2]
        if line.startswith("some ") and total.isdigit():
            return int(total) * 1000
    return None


def _allowed(pid: int, proc: Path) -> frozenset[int] | None:
    for line in (contents(proc / str(pid) / "status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return _processors(line.partition(":")[2])
    return None


def _processors(ranges: str) -> frozenset[int]:
    parts = [part.split("-") for part in ranges.strip().split(",") if part]
    return frozenset(number for part in parts for number in range(int(part[0]), int(part[-1]) + 1))


def _numa_nodes(allowed: frozenset[int], sys: Path) -> str | None:
    """Return the memory nodes of these CPUs, comma-separated; None if the kernel reports no nodes."""
    folder = sys / "devices/system/node"
    numbers = sorted(int(name[4:]) for name in names(str(folder)) if name.startswith("node") and name[4:].isdigit())
    near = [number for number in numbers if allowed & _processors(contents(folder / f"node{number}/cpulist") or "")]
    return ",".join(map(str, near)) or None


def difference(before: Pressure, after: Pressure, about: Host | None = None, *, root: int | None = None) -> Host:
    """Return ``about`` with the changes between two snapshots.  Threads that ended are left out; new ones count in full.

    ``root`` is the process at the root of the tree, if known.
    """
    span_s = (after.at_ns - before.at_ns) / 1e9
    ran_ns: dict[int, int] = {}
    waited_ns = 0
    for thread, (ran, waited) in after.threads.items():
        ran_before, waited_before = before.threads.get(thread, (0, 0))
        ran_ns[thread] = max(0, ran - ran_before)
        waited_ns += max(0, waited - waited_before)
    seen = bool(after.threads)
    host = about or Host()
    if before.owners:
        host = _with_born(host, before, after, ran_ns, root)
    spent = {state: ticks - before.ticks[state] for state, ticks in after.ticks.items() if state in before.ticks}
    total = sum(spent.values())
    idle = spent.get("idle", 0) + spent.get("iowait", 0)
    return replace(
        host,
        cpu_allowed_count=after.cpu_allowed_count,
        span_s=span_s,
        cpu_s=sum(ran_ns.values()) / 1e9 if seen else None,
        run_wait_s=waited_ns / 1e9 if seen else None,
        threads_count=len(after.threads) if seen else None,
        cgroup_throttled_s=_grown(before.cgroup_throttled_ns, after.cgroup_throttled_ns, 1e9),
        steal_ratio=spent["steal"] / total if total > 0 and "steal" in spent else None,
        cpu_busy_ratio=1 - idle / total if total > 0 else None,
        numa_nodes=after.numa_nodes,
        watcher_cpu_s=_grown(before.watcher_cpu_s, after.watcher_cpu_s, 1.0),
        wall_step_s=_step_s(before.wall_offset_ns, after.wall_offset_ns),
        cpu_pressure_ratio=_grown(before.psi_some_ns, after.psi_some_ns, span_s * 1e9) if span_s > 0 else None,
    )


def _with_born(host: Host, before: Pressure, after: Pressure, ran_ns: Mapping[int, int], root: int | None) -> Host:
    """Add the threads and processes that a tree started between two snapshots, unless they are the measured work itself.

    Threads of a new process count as that process.  A root with little CPU time, such as ``gpuwatch run``, only starts the
    work and waits.  Then the new processes are the work, not competitors.  In a sleeping tree the work cannot be identified.
    """
    of_root_ns = sum(ran for thread, ran in ran_ns.items() if after.owners.get(thread) == root)
    if root is not None and of_root_ns < _LAUNCHER_RATIO * sum(ran_ns.values()):
        return host
    known = set(before.owners.values())
    new = {thread: owner for thread, owner in after.owners.items() if thread not in before.threads}
    if root is not None and new and sum(ran_ns.values()) < _ASLEEP_RATIO * (after.at_ns - before.at_ns):
        return host
    return replace(
        host,
        threads_born_count=sum(owner in known for owner in new.values()),
        processes_born_count=len({owner for owner in new.values() if owner not in known}),
        born_cpu_s=sum(ran_ns.get(thread, 0) for thread in new) / 1e9,
    )


def _grown(before: float | None, after: float | None, per: float) -> float | None:
    return (after - before) / per if before is not None and after is not None and after >= before else None


def _step_s(before_ns: int | None, after_ns: int | None) -> float | None:
    return (after_ns - before_ns) / 1e9 if before_ns is not None and after_ns is not None else None
