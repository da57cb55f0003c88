"""Sets of processes whose GPU work belongs to a window: a tree, a session, or all of a user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpuwatch.host.processes import PROC, contents, descendants, descends, names, started_ticks


class OwnProcesses(Protocol):
    """The test that separates a window's own processes from others."""

    def includes(self, pid: int) -> bool:
        """Return True if this process belongs to the window."""

    def everyone(self) -> frozenset[int]:
        """Return all running processes of the window."""


@dataclass(frozen=True, slots=True)
class TreeMembers:
    """Root processes and their descendants; ``started`` are the start times of held roots."""

    roots: tuple[int, ...]
    started: tuple[int | None, ...] = ()
    proc: Path = PROC
    seen_reused: set[int] = field(default_factory=set)  # permanent, because evidence already contains the PID's later process

    @staticmethod
    def held(roots: tuple[int, ...], *, proc: Path = PROC) -> TreeMembers:
        """Hold processes by PID and start time, because the kernel may reuse the PID of an ended process."""
        return TreeMembers(roots, tuple(started_ticks(each, proc=proc) for each in roots), proc)

    def includes(self, pid: int) -> bool:
        return any(descends(pid, root, proc=self.proc) for root in self._standing())

    def everyone(self) -> frozenset[int]:
        return frozenset[int]().union(*(descendants(root, proc=self.proc) for root in self._standing()))

    def reused(self) -> tuple[int, ...]:
        """Return the roots whose PID belonged to another process in this or an earlier query."""
        now = {root: started_ticks(root, proc=self.proc) for root, _ in zip(self.roots, self.started, strict=False)}
        pairs = zip(self.roots, self.started, strict=False)
        self.seen_reused.update(root for root, started in pairs if None not in (started, now[root]) and started != now[root])
        return tuple(root for root in self.roots if root in self.seen_reused)

    def _standing(self) -> tuple[int, ...]:
        gone = self.reused()
        return tuple(root for root in self.roots if root not in gone)


@dataclass(frozen=True, slots=True)
class KinMembers:
    """The processes of one session, of one user, or of both at once, each with its descendants.

    Descendants in a new session are included, because programs often detach their workers that way.
    """

    session: int | None = None
    uid: int | None = None
    proc: Path = PROC

    def includes(self, pid: int) -> bool:
        return any(map(self._is_kin, self._line(pid)))

    def everyone(self) -> frozenset[int]:
        known: dict[int, bool] = {}
        for pid in (int(name) for name in names(str(self.proc)) if name.isdigit()):
            line: list[int] = []
            is_kin = False
            for each in self._line(pid):
                line.append(each)
                is_kin = known[each] if each in known else self._is_kin(each)
                if is_kin or each in known:
                    break
            known.update(dict.fromkeys(line, is_kin))
        return frozenset(pid for pid, is_kin in known.items() if is_kin)

    def _line(self, pid: int) -> Iterator[int]:
        """Yield a process and its ancestors, without process 1."""
        seen: set[int] = set()
        while pid > 1 and pid not in seen:
            yield pid
            seen.add(pid)
            pid = _parent_and_session(pid, self.proc)[0]

    def _is_kin(self, pid: int) -> bool:
        if self.session is not None and _parent_and_session(pid, self.proc)[1] != self.session:
            return False
        return self.uid is None or user_of(pid, proc=self.proc) == self.uid


def session_of(pid: int, *, proc: Path = PROC) -> int | None:
    """Return a process's session, 0 if the session started outside this PID namespace; None if the process is gone."""
    session = _parent_and_session(pid, proc)[1]
    return None if session < 0 else session


def user_of(pid: int, *, proc: Path = PROC) -> int | None:
    """Return a process's real user; None if the process is gone or hidden."""
    for line in (contents(proc / str(pid) / "status") or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None


def _parent_and_session(pid: int, proc: Path) -> tuple[int, int]:
    # The name in parentheses may contain spaces and parentheses; state, parent, group and session follow the last one.
    words = (contents(proc / str(pid) / "stat") or "").rpartition(")")[2].split()
    return (int(words[1]), int(words[3])) if len(words) > 3 else (0, -1)
