"""The processes whose work on a GPU is a window's own: a tree, a session, or all of a user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpuwatch.host.processes import PROC, contents, descendants, descends, names, started_ticks


class OwnProcesses(Protocol):
    """Tells a window's own processes from those of others."""

    def includes(self, pid: int) -> bool:
        """Return whether this process is one of them."""

    def everyone(self) -> frozenset[int]:
        """Return all of them that run now."""


@dataclass(frozen=True, slots=True)
class TreeMembers:
    """Processes and their descendants; ``started`` are the roots' start times where these are held."""

    roots: tuple[int, ...]
    started: tuple[int | None, ...] = ()
    proc: Path = PROC
    seen_reused: set[int] = field(default_factory=set)  # for good: evidence already holds what had the PID meanwhile

    @staticmethod
    def held(roots: tuple[int, ...], *, proc: Path = PROC) -> TreeMembers:
        """Hold processes by PID and start time, for hours in which another process may be given the PID of one that ended."""
        return TreeMembers(roots, tuple(started_ticks(each, proc=proc) for each in roots), proc)

    def includes(self, pid: int) -> bool:
        return any(descends(pid, root, proc=self.proc) for root in self._standing())

    def everyone(self) -> frozenset[int]:
        return frozenset[int]().union(*(descendants(root, proc=self.proc) for root in self._standing()))

    def reused(self) -> tuple[int, ...]:
        """Return the roots whose PID was seen to be another process's, by this question or an earlier one."""
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

    A descendant that began a session of its own still is one: programs that detach their workers do that.
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
        """Yield a process and those above it, without the first of the machine."""
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
    """Return the session of a process, 0 for one begun outside this PID namespace; None of a process that is gone."""
    session = _parent_and_session(pid, proc)[1]
    return None if session < 0 else session


def user_of(pid: int, *, proc: Path = PROC) -> int | None:
    """Return the real user of a process; None of one that is gone or not visible from here."""
    for line in (contents(proc / str(pid) / "status") or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None


def _parent_and_session(pid: int, proc: Path) -> tuple[int, int]:
    # The name in parentheses may itself hold spaces and parentheses; state, parent, group and session follow its last one.
    words = (contents(proc / str(pid) / "stat") or "").rpartition(")")[2].split()
    return (int(words[1]), int(words[3])) if len(words) > 3 else (0, -1)
