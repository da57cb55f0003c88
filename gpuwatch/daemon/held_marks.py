"""Windows that no connection owns: one process begins a mark, and another process ends the mark by its name."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuwatch import clock
from gpuwatch.daemon.tracked_window import is_untrusted
from gpuwatch.daemon.windows import Windows
from gpuwatch.errors import TrustedMarkError, UsageError
from gpuwatch.host.mark_members import KinMembers, OwnProcesses, TreeMembers, session_of, user_of
from gpuwatch.host.processes import PROC
from gpuwatch.interfaces import Run
from gpuwatch.wire import messages
from gpuwatch.wire.mark_bounds import LONGEST_S, SHORTEST_S

_log = logging.getLogger("gpuwatch.daemon.held_marks")

MARKS_COUNT = 64  # open marks of one user
EXPIRED_COUNT = 64  # expired marks of one user; `mark end` still returns their verdicts
_CLAIMED = frozenset({"claimed_calls_count", "claimed_call_s"})  # only marks begun with --untrusted declare these

_Key = tuple[int, str]  # uid and name: different users may choose the same name


@dataclass(frozen=True, slots=True)
class _Mark:
    run: Run
    expiry: asyncio.TimerHandle
    own: OwnProcesses


class HeldMarks:
    """The open and expired marks of every user.  All methods run in the daemon's event loop."""

    def __init__(self, windows: Windows, *, shortest_s: float = SHORTEST_S, proc: Path = PROC) -> None:
        self._windows = windows
        self._proc = proc
        self._shortest_s = shortest_s
        self._begun_ns = clock.now_ns()
        self._open: dict[_Key, _Mark] = {}
        self._expired: dict[_Key, str] = {}  # run ids, the oldest first

    def holds(self, run_id: str) -> bool:
        """Return whether an open mark owns this window."""
        return any(mark.run.id == run_id for mark in self._open.values())

    def answer(self, request: messages.OpenMark | messages.CloseMark, *, pid: int, uid: int) -> messages.Reply:
        """Begin or end a mark.

        Raises UsageError: for a request that cannot be met.
        """
        owner = uid if request.uid is None else request.uid
        if uid not in (owner, 0):
            raise UsageError(f"mark {request.name!r}: expected uid {owner} or root, found uid {uid}; run it as uid {owner}")
        if isinstance(request, messages.OpenMark):
            _check_terms(request, self._shortest_s)
            return self._begin(request, (owner, request.name), pid)
        return self._end(request, (owner, request.name))

    def _begin(self, request: messages.OpenMark, key: _Key, pid: int) -> messages.Opened:
        self._check_room(key)
        root, own, words = _own_processes(request, pid, key[0], self._proc)
        stated = msgspec.structs.replace(request, declared={**request.declared, "own_processes": words})
        run, warning = self._windows.open(stated, pid=root, uid=key[0], own=own)
        expiry = asyncio.get_running_loop().call_later(request.expires_s, self._expire, key, request.expires_s)
        self._open[key] = _Mark(run, expiry, own)
        self._expired.pop(key, None)
        return messages.Opened(run=run.id, opened_ns=run.begin_ns, warning=warning)

    def _check_room(self, key: _Key) -> None:
        uid, name = key
        if (mark := self._open.get(key)) is not None:
            age_s = (clock.now_ns() - mark.run.begin_ns) / 1e9
            raise UsageError(
                f"mark {name!r}: expected an unused name, found your mark open for {age_s:.0f} s"
                f" (run {mark.run.id}); end that mark with `gpuwatch mark end`, or choose another name"
            )
        if (count := Counter(each for each, _ in self._open)[uid]) >= MARKS_COUNT:
            raise UsageError(
                f"mark {name!r}: expected fewer than {MARKS_COUNT} open marks of your user, found {count}; end one first"
            )

    def _end(self, request: messages.CloseMark, key: _Key) -> messages.Closed:
        uid, name = key
        if (mark := self._open.get(key)) is not None:
            if _CLAIMED & request.declared.keys() and not is_untrusted(mark.run.declared):
                raise TrustedMarkError(
                    f"--calls, --call-time: expected a mark begun with --untrusted, found {name!r}; begin it with --untrusted"
                )
            del self._open[key]
            mark.expiry.cancel()
            self._close(mark, request.declared, uid)
            return messages.Closed(run=mark.run.id)
        if (expired := self._expired.get(key)) is not None:
            return messages.Closed(run=expired)
        others = sorted(other for owner, other in self._open if owner == uid)
        age_s = (clock.now_ns() - self._begun_ns) / 1e9
        found = (
            ", ".join(map(repr, others[:8]))
            or f"none; this daemon started {age_s:.0f} s ago, and a mark does not outlive its daemon"
        )
        raise UsageError(f"mark {name!r}: expected the name of your open mark, found {found}")

    def _close(self, mark: _Mark, declared: dict[str, messages.FactValue], uid: int) -> None:
        if isinstance(mark.own, TreeMembers) and (reused := mark.own.reused()):
            # Evidence names processes by PID, so the work of two processes with the same PID cannot be separated.
            whose = ", ".join(map(str, reused))
            self._windows.abandon(mark.run.id, f"the measured process {whose} ended, and another process reused the PID")
            return
        run = mark.run
        end = messages.Close(run=run.id, begin_ns=run.begin_ns, end_ns=clock.now_ns(), declared=declared)
        self._windows.close(end, uid=uid)

    def _expire(self, key: _Key, after_s: float) -> None:
        mark = self._open.pop(key)
        self._expired[key] = mark.run.id
        mine = [each for each in self._expired if each[0] == key[0]]
        if len(mine) > EXPIRED_COUNT:
            del self._expired[mine[0]]
        why = f"the mark expired after {after_s:g} s without `gpuwatch mark end`"
        _log.warning("window %s: %s", mark.run.id, why)
        self._windows.abandon(mark.run.id, why)


def _check_terms(request: messages.OpenMark, shortest_s: float) -> None:
    if not request.name or not 0 <= (request.uid or 0) < 1 << 32:
        raise UsageError(f"mark {request.name!r}: expected a non-empty name and a uid of 32 bits, found uid {request.uid}")
    if not shortest_s <= request.expires_s <= LONGEST_S:
        raise UsageError(
            f"mark {request.name!r}: --expires: expected {shortest_s:g} to {LONGEST_S:g} s, found {request.expires_s:g} s"
        )


def _own_processes(terms: messages.OpenMark, pid: int, uid: int, proc: Path) -> tuple[int, OwnProcesses, str]:
    """Return a mark's first process, its own processes, and their description.

    Raises UsageError: for a process that is hidden, gone or another user's, and for ``--own user`` as root.
    """
    if not pid or user_of(pid, proc=proc) is None:
        raise UsageError(
            "mark: expected a process in the PID namespace of the daemon, found one outside; run the daemon in the host's namespace"
        )
    if terms.own == "pids":
        found = {each: user_of(each, proc=proc) for each in terms.pids}
        wrong = [each for each, user in found.items() if user is None or uid not in (user, 0)]
        if wrong or not found:
            raise UsageError(f"mark {terms.name!r}: --pid: expected running processes of your user, found {wrong or 'none'}")
        return terms.pids[0], TreeMembers.held(tuple(terms.pids), proc=proc), f"processes {', '.join(map(str, terms.pids))}"
    session = session_of(pid, proc=proc)
    if terms.own == "user" and uid == 0:
        raise UsageError(
            "mark: expected --own session, --pid or another --uid, found --own user as root: root's processes start all others"
        )
    if terms.own == "user":
        return session or pid, KinMembers(uid=uid, proc=proc), f"user {uid}"
    if session is None:
        raise UsageError(f"mark {terms.name!r}: expected a running process, found that process {pid} ended")
    if session == 0:  # `docker exec` has session 0: a container's users can be distinguished, its terminals cannot
        return pid, KinMembers(session=0, uid=uid, proc=proc), f"sessions of user {uid} started outside this PID namespace"
    return session, KinMembers(session=session, proc=proc), f"session {session}"
