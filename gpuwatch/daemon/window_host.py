"""One window's host: its process tree, how hard that had to fight for a processor, and what profiled it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial

from annotate.evidence import Host
from gpuwatch.daemon.user_turns import InThread
from gpuwatch.host import cpu_pressure, gpu_sharing, processes, profilers
from gpuwatch.host.cpu_pressure import Pressure


@dataclass(slots=True)
class WindowHost:
    """The operating system's view of one window.  Only the daemon's event loop changes it."""

    pid: int  # of the process that opened the window; 0 where it is not visible from here
    opened_ns: int
    facts: Host  # that hold for the machine and the process throughout
    in_thread: InThread
    pids: set[int] = field(default_factory=set)
    _before: Pressure | None = None
    _after: Pressure | None = None
    # Threads that ended before the window did were seen in between.
    _threads: dict[int, tuple[int, int]] = field(default_factory=dict)
    _owners: dict[int, int] = field(default_factory=dict)

    def includes(self, pid: int, *, is_new: bool) -> bool:
        """Return whether a process is of the tree; only a new one is looked for below the window's process."""
        if is_new and self.pid and pid not in self.pids and processes.descends(pid, self.pid):
            self.pids.add(pid)
        return pid in self.pids

    async def begin(self) -> None:
        """Read the process tree, the pressure it begins under, and what shares its GPUs or profiles it."""
        self.pids |= await self.in_thread(_measured_tree, self.pid)
        self._before = await self.in_thread(partial(cpu_pressure.pressure, self._tree(), there_by_ns=self.opened_ns))
        self.facts = replace(self.facts, sharing=await self.in_thread(gpu_sharing.sharing, self.pid))
        await self._look_for_profilers()

    async def look_again(self) -> None:
        """Read tree and pressure in between."""
        self.pids |= await self.in_thread(_measured_tree, self.pid)
        seen = await self.in_thread(cpu_pressure.pressure, self._tree())
        self._threads.update(seen.threads)
        self._owners.update(seen.owners)

    async def end(self) -> None:
        """Read the pressure at the window's end, and profilers again: a library may have been loaded meanwhile."""
        if self._before is not None:
            self._after = await self.in_thread(cpu_pressure.pressure, self._tree())
            await self._look_for_profilers()

    def between_edges(self) -> Host:
        """Return what the host did to the window between its edges."""
        if self._before is None or self._after is None:
            return self.facts
        threads, owners = {**self._threads, **self._after.threads}, {**self._owners, **self._after.owners}
        after = replace(self._after, threads=threads, owners=owners)
        return cpu_pressure.difference(self._before, after, self.facts, root=self.pid)

    def _tree(self) -> tuple[int, ...]:
        # The first process stands for the processors and the control group of all.
        return tuple(sorted(self.pids, key=lambda pid: (pid != self.pid, pid)))

    async def _look_for_profilers(self) -> None:
        others = sorted(self.pids - {self.pid})
        seen = await self.in_thread(profilers.attached, (self.pid, *others))
        self.facts = replace(self.facts, profilers=profilers.text(seen, self.facts.profilers))


def _measured_tree(pid: int) -> frozenset[int]:
    """Return a process and its descendants without this daemon, which may be one: the first window starts it."""
    return processes.descendants(pid) - processes.descendants(os.getpid())
