"""The scope of one window: its GPUs and its host."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from annotate.evidence import Device, Host, Pause, ProcessList
from gpuwatch import clock
from gpuwatch.daemon.user_turns import InThread
from gpuwatch.errors import UsageError
from gpuwatch.host import cpu_pressure, gpu_sharing, named_gpus, processes, profilers, thread_pauses
from gpuwatch.host.cpu_pressure import Pressure
from gpuwatch.host.mark_members import OwnProcesses, TreeMembers
from gpuwatch.wire.messages import FactValue

LOOK_S = 0.1  # interval of reads of the launching thread's state

_UNSEEN = (
    "the process of this window is not in the PID namespace of the daemon, so its GPUs are unknown; run the daemon with"
    " hostPID: true in Kubernetes, or with --pid=host in Docker"
)
_NO_CONTEXT = "no process of this window held a context on a GPU; if another process did the work, name the GPU: {}"


@dataclass(slots=True)
class WindowHost:
    """The operating system's view of one window.  Only the daemon's event loop changes it."""

    pid: int  # PID that opened the window; 0 if the daemon's PID namespace hides the process
    opened_ns: int
    facts: Host  # facts about the machine; sharing and profilers follow
    in_thread: InThread
    pids: set[int] = field(default_factory=set)
    thread: int = 0  # the thread that launches; 0: the process's first
    own: OwnProcesses | None = None  # None: the process and its descendants
    _before: Pressure | None = None
    _after: Pressure | None = None
    # Read during the window, because a read at its end would miss the threads that ended before.
    _threads: dict[int, tuple[int, int]] = field(default_factory=dict)
    _owners: dict[int, int] = field(default_factory=dict)

    def includes(self, pid: int, *, is_new: bool) -> bool:
        """Return whether a process belongs to the window; only a new process is looked up in the process tree."""
        if is_new and self.pid and pid not in self.pids and self._members().includes(pid):
            self.pids.add(pid)
        return pid in self.pids

    def holds(self, pid: int) -> bool:
        """Return whether a process belongs to the window's tree now."""
        return bool(self.pid and pid) and self._members().includes(pid)

    async def begin(self) -> None:
        """Read the process tree, its initial CPU pressure, the way its GPUs are shared, and the attached profilers."""
        self.pids |= await self.in_thread(_measured, self._members())
        self._before = await self.in_thread(partial(cpu_pressure.pressure, self._tree(), there_by_ns=self.opened_ns))
        self.facts = replace(self.facts, sharing=await self.in_thread(gpu_sharing.sharing, self.pid))
        await self._look_for_profilers()

    async def look_again(self) -> None:
        """Read tree and pressure during the window."""
        self.pids |= await self.in_thread(_measured, self._members())
        seen = await self.in_thread(cpu_pressure.pressure, self._tree())
        self._threads.update(seen.threads)
        self._owners.update(seen.owners)

    async def follow_pauses(self, is_open: Callable[[], bool], see: Callable[[Pause], None]) -> None:
        """Read the launching thread's state repeatedly while the window is open, and report its pauses to ``see``."""
        before = thread_pauses.look_at(self.pid, self.thread or None)
        while before is not None and is_open():
            await asyncio.sleep(clock.until_tick_s(asyncio.get_running_loop().time(), LOOK_S))
            after = thread_pauses.look_at(self.pid, self.thread or None)
            if after is not None and (pause := thread_pauses.pause_between(before, after)) is not None:
                see(pause)
            before = after

    async def end(self) -> None:
        """Read the pressure at the window's end, and profilers again: a library may have been loaded meanwhile."""
        if self._before is not None:
            self._after = await self.in_thread(cpu_pressure.pressure, self._tree())
            await self._look_for_profilers()

    def between_edges(self) -> Host:
        """Return the host's facts, with its effects on the window if both edges were read."""
        if self._before is None or self._after is None:
            return self.facts
        threads, owners = {**self._threads, **self._after.threads}, {**self._owners, **self._after.owners}
        after = replace(self._after, threads=threads, owners=owners)
        return cpu_pressure.difference(self._before, after, self.facts, root=self.pid)

    def _members(self) -> OwnProcesses:
        return self.own or TreeMembers((self.pid,))

    def _tree(self) -> tuple[int, ...]:
        # The window's own process comes first: its CPUs and control group are used for the whole tree.
        return tuple(sorted(self.pids, key=lambda pid: (pid != self.pid, pid)))

    async def _look_for_profilers(self) -> None:
        seen = await self.in_thread(profilers.attached, (self.pid, *sorted(self.pids - {self.pid})))
        self.facts = replace(self.facts, profilers=profilers.text(seen, self.facts.profilers))


def _measured(own: OwnProcesses) -> frozenset[int]:
    """Return a window's own processes without the daemon's, which the first window may have started."""
    return own.everyone() - processes.descendants(os.getpid())


@dataclass(slots=True)
class WindowGpus:
    """The GPUs that one window covers, learnt from process lists.  Only the daemon's event loop changes it."""

    named: tuple[str, ...] | None = None
    seen: set[str] = field(default_factory=set)  # GPUs on which the window's processes held a context
    foreign_pids: dict[str, set[int]] = field(default_factory=dict)  # by GPU, from its last process list
    _is_hidden: bool = False  # True after a process list that could not have shown the window's processes

    def note(self, listed: ProcessList, host: WindowHost) -> None:
        """Look for the window's processes in a GPU's process list."""
        known, foreign_pids = self.foreign_pids.get(listed.uuid, set()), set()
        for process in listed.processes:
            # Re-check PIDs missing from the last list: PIDs are reused.
            if host.includes(process.pid, is_new=process.pid not in known):
                self.seen.add(listed.uuid)
            else:
                foreign_pids.add(process.pid)
        self.foreign_pids[listed.uuid] = foreign_pids
        self._is_hidden = self._is_hidden or listed.visibility != "host"

    def at_edges(self, declared: Mapping[str, FactValue], watched: Sequence[str]) -> tuple[str, ...]:
        """Return the GPUs to read at an edge: the window's GPUs where they are known, else all."""
        if self.named is not None:
            return self.named
        return tuple(self.seen) or declared_gpus(declared, watched) or tuple(watched)

    def covered(
        self, declared: Mapping[str, FactValue], watched: Sequence[str], absence: str | None, *, is_visible: bool
    ) -> tuple[tuple[str, ...], str]:
        """Return the watched GPUs that the window covers, and the reason for missing ones, if any."""
        if self.named is not None:
            beside = [uuid for uuid in self.seen if uuid not in self.named]
            return (
                self.named,
                f"not judged, because not named: {', '.join(beside)}, where the window held a context" if beside else "",
            )
        used = self.seen.union(declared_gpus(declared, watched))
        if uuids := tuple(uuid for uuid in watched if uuid in used):
            return uuids, ""
        if not watched:
            return (), absence or "no GPU is being watched"
        if self._is_hidden and len(watched) == 1:
            return tuple(watched), ""
        option = "--gpu GPU" if declared.get("whole_program") else "gpus=[UUID]"  # `run` and `mark` declare whole programs
        return (), _NO_CONTEXT.format(option) if is_visible else _UNSEEN


def find_named(
    names: Sequence[str] | None, devices: Iterable[Device], *, missing_count: int = 0
) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the watched GPUs of these names (None for None), and an error message for a wrong name.

    ``missing_count`` counts GPUs that the driver lists and that do not answer.  The client takes a message that begins with
    "gpus:" for a wrong argument, so the message begins otherwise if the name may be right: without GPUs and with missing ones.
    """
    if names is None:
        return None, None
    if not (known := named_gpus.list_named(devices)):
        return (), f"no GPU is being watched, so none is named {', '.join(names)}"
    try:
        chosen = named_gpus.choose_named(names, known, option="gpus", missing_count=missing_count)
    except UsageError as error:
        return (), str(error).removeprefix("gpus: " if missing_count else "")
    return tuple(gpu.device.uuid for gpu in chosen), None


def declared_gpus(declared: Mapping[str, FactValue], watched: Sequence[str]) -> tuple[str, ...]:
    """Return the watched GPUs that the window's process declared."""
    uuids = str(declared.get("cuda_uuids") or "").split(",")
    return tuple(uuid for uuid in watched if uuid in uuids)
