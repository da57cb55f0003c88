"""A window in hand: one between its opening and its verdict, and what the daemon learns of it meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from annotate.evidence import Host, ProcessList
from gpuwatch.errors import UsageError
from gpuwatch.host import cpu_pressure, gpu_sharing, processes, profilers
from gpuwatch.interfaces import Run
from gpuwatch.wire import timings
from gpuwatch.wire.messages import FactValue, Times

# How far a client's own mark of an edge may lie from the daemon's: a descheduled process, not a piece of the benchmark.
EDGE_SLACK_NS = 100_000_000

_T = TypeVar("_T")


class InThread(Protocol):
    """Awaits a function in a thread: what asks the operating system takes milliseconds, and the loop has other windows."""

    def __call__(self, work: Callable[..., _T], *arguments: object) -> Awaitable[_T]: ...


_UNSEEN = (
    "the process of this window is not in the PID namespace of the daemon, which cannot find it on a GPU; give the daemon the"
    " host's PIDs: hostPID: true in Kubernetes, --pid=host in Docker"
)


@dataclass(slots=True)
class TrackedWindow:
    """One window between its opening and its verdict.  All is changed in the daemon's event loop only."""

    run: Run
    named: tuple[str, ...] | None
    about: Host  # what holds for its machine and process throughout
    before: cpu_pressure.Pressure | None = None
    seen: set[str] = field(default_factory=set)  # GPUs on which its processes held a context
    pids: set[int] = field(default_factory=set)
    strangers: dict[str, set[int]] = field(default_factory=dict)  # by GPU: on it when last seen, found not to descend from it
    opened_ns: int = 0  # when it was asked for: no honest mark lies before
    active: bool = False  # its GPUs are sampled at the full rate for it
    threads: dict[int, tuple[int, int]] = field(default_factory=dict)  # what each ran and waited when last seen
    owners: dict[int, int] = field(default_factory=dict)  # the process of each
    times: list[Times] = field(default_factory=list)
    times_count: int = 0
    judging_s: float | None = None
    hidden: bool = False  # a census was taken that could not have shown it
    told_all: asyncio.Event = field(default_factory=asyncio.Event)  # closed: nothing more is told of it
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def tree(self) -> tuple[int, ...]:
        """Its processes, the one that opened it first: it stands for the others' processors and control group."""
        return tuple(sorted(self.pids, key=lambda pid: (pid != self.run.pid, pid)))

    # What it is told

    def checked(self, piece: Times) -> int:
        """How many times a message adds.  Raises UsageError for one that does not fit, or too many."""
        return timings.check(piece, self.times[0] if self.times else None, self.times_count)

    def take(self, piece: Times, count: int) -> None:
        self.times.append(piece)
        self.times_count += count

    def settled(self, begin_ns: int, end_ns: int, now_ns: int) -> tuple[int, int]:
        """The interval it is judged by, from its own marks.  Raises UsageError for marks that cannot be."""
        if not self.opened_ns <= begin_ns <= end_ns <= now_ns:
            raise UsageError(
                f"times of {self.run.id}: expected begin and end between {self.opened_ns} and {now_ns}, "
                f"found {begin_ns} and {end_ns}"
            )
        # The client marks the edges, because only it knows when its body ran; but one that is rewarded for a good verdict
        # must not cut the bad part off, so they stay close to when the daemon was told.
        return min(begin_ns, self.run.begin_ns + EDGE_SLACK_NS), max(end_ns, now_ns - EDGE_SLACK_NS)

    def tell_all(self, told: dict[str, FactValue]) -> None:
        self.run = replace(self.run, told={**self.run.told, **told})
        self.told_all.set()

    # What its GPUs show of it

    def note(self, census: ProcessList) -> None:
        """Look for its processes in a list of those on a GPU."""
        root, known, strangers = self.run.pid, self.strangers.get(census.uuid, set()), set()
        for process in census.processes:
            pid = process.pid
            # Who was not there the last time is looked at, whoever had that PID before: they are used again.
            if pid not in self.pids and pid not in known and root and processes.descends(pid, root):
                self.pids.add(pid)
            if pid in self.pids:
                self.seen.add(census.uuid)
            else:
                strangers.add(pid)
        self.strangers[census.uuid] = strangers
        if census.visibility != "host":
            self.hidden = True

    def covered(self, watched: Sequence[str], absence: str | None) -> tuple[tuple[str, ...], str]:
        """Which of the watched GPUs it covers, and why there is none."""
        if self.named is not None:
            beside = [uuid for uuid in self.seen if uuid not in self.named]
            return self.named, f"also held a context on {', '.join(beside)}, not judged" if beside else ""
        hinted = set(str(self.run.told.get("cuda_uuids") or "").split(","))
        uuids = tuple(uuid for uuid in watched if uuid in self.seen or uuid in hinted)
        if uuids:
            return uuids, ""
        if not watched:
            return (), absence or "no GPU is being watched"
        if self.hidden and len(watched) == 1:
            return tuple(watched), ""
        if not self.run.pid:
            return (), _UNSEEN
        return (
            (),
            "no process of this window held a context on a GPU; name the GPU if another process works for it: gpus=[UUID]",
        )

    # What the operating system shows of it

    async def meet(self, identities: processes.Identities, in_thread: InThread) -> None:
        """After its opening: who it is, its process tree, and the pressure it begins under."""
        who = await in_thread(identities.of, self.run.pid)
        self.run = replace(self.run, user=who.user, process=who.name)
        self.pids |= await in_thread(_measured_tree, self.run.pid)
        there = partial(cpu_pressure.pressure, self.tree(), there_by_ns=self.opened_ns)
        self.before = await in_thread(there)
        shared = await in_thread(gpu_sharing.sharing, self.run.pid)
        self.about = replace(self.about, sharing=shared)
        await self.look_for_profilers(in_thread)

    async def look_again(self, in_thread: InThread) -> None:
        """In between: what has ended by its end was seen."""
        self.pids |= await in_thread(_measured_tree, self.run.pid)
        looked = await in_thread(cpu_pressure.pressure, self.tree())
        self.threads.update(looked.threads)
        self.owners.update(looked.owners)

    async def look_for_profilers(self, in_thread: InThread) -> None:
        """Once after each edge: a library may be loaded meanwhile, and at the end the process may be gone."""
        others = sorted(self.pids - {self.run.pid})
        seen = await in_thread(profilers.attached, (self.run.pid, *others))
        self.about = replace(self.about, profilers=profilers.text(seen, self.about.profilers))

    async def pressed(self, in_thread: InThread) -> cpu_pressure.Pressure | None:
        """The pressure at its end; None where that of its beginning is not known."""
        return await in_thread(cpu_pressure.pressure, self.tree()) if self.before else None

    def on_host(self, after: cpu_pressure.Pressure | None) -> Host:
        """What the host did to it between its edges."""
        if self.before is None or after is None:
            return self.about
        after = replace(after, threads={**self.threads, **after.threads}, owners={**self.owners, **after.owners})
        return cpu_pressure.difference(self.before, after, self.about, root=self.run.pid)


def named(gpus: Sequence[str] | None, watched: Sequence[str]) -> tuple[tuple[str, ...] | None, str | None]:
    """The watched GPUs of these names, and what is wrong with one; None where no name was given."""
    if gpus is None:
        return None, None
    found: list[str] = []
    for name in gpus:
        matches = [uuid for uuid in watched if uuid.startswith((name, f"GPU-{name}"))]
        if len(matches) != 1:
            known = ", ".join(watched) or "none"
            return (), f"gpus: expected the UUID of one GPU, found {name!r}; known here: {known}"
        found += matches
    return tuple(dict.fromkeys(found)), None


def hinted(told: Mapping[str, FactValue], watched: Sequence[str]) -> tuple[str, ...]:
    """The watched GPUs its process told of, else all."""
    uuids = str(told.get("cuda_uuids") or "").split(",")
    return tuple(uuid for uuid in watched if uuid in uuids) or tuple(watched)


def _measured_tree(pid: int) -> frozenset[int]:
    """A process and its descendants, but for this daemon, which may be one: the first window started it."""
    return processes.descendants(pid) - processes.descendants(os.getpid())


__all__ = ["EDGE_SLACK_NS", "InThread", "TrackedWindow", "hinted", "named"]
