"""Tests of windows without a connection: bounded, private to a user, ended by name or by expiry."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.daemon.held_marks import MARKS_COUNT, HeldMarks
from gpuwatch.errors import UsageError
from gpuwatch.wire.messages import Close, Closed, CloseMark, Opened, OpenMark
from tests.gpuwatch.host.test_mark_members import processes
from tests.waiting import wait_until_async

ME, OTHER = os.getpid(), 4_000_000_000


@dataclass(frozen=True)
class _Opened:
    id: str
    declared: dict[str, Any]
    begin_ns: int = 1


@dataclass
class _Windows:
    """The part of the daemon's windows that marks use, with a record of calls."""

    opened: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)
    closed: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    abandoned: list[tuple[str, str]] = field(default_factory=list)

    def open(self, request: OpenMark, *, pid: int, uid: int, own: object) -> tuple[_Opened, None]:
        self.opened.append((pid, uid, dict(request.declared)))
        return _Opened(f"run-{len(self.opened)}", dict(request.declared)), None

    def close(self, request: Close, *, uid: int) -> None:
        self.closed.append((request.run, dict(request.declared)))

    def abandon(self, run_id: str, why: str) -> None:
        self.abandoned.append((run_id, why))


@pytest.fixture
def windows() -> _Windows:
    return _Windows()


@pytest.fixture
def marks(windows: _Windows) -> HeldMarks:
    stands_in: Any = windows
    return HeldMarks(stands_in, shortest_s=0.01)


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    yield process.pid
    process.communicate(b"\n")


def begin(name: str = "a", *, expires_s: float = 60.0, **terms: Any) -> OpenMark:
    return OpenMark(name=name, expires_s=expires_s, **terms)


def refused(marks: HeldMarks, request: OpenMark | CloseMark, *, pid: int = ME, uid: int = 7) -> str:
    with pytest.raises(UsageError) as caught:
        marks.answer(request, pid=pid, uid=uid)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_mark_is_ended_by_its_name_with_its_facts(marks: HeldMarks, windows: _Windows, child: int) -> None:
    """The name and the user suffice to end a mark, on any connection."""

    async def course() -> None:
        opened = marks.answer(begin(declared={"untrusted": True}), pid=child, uid=7)
        ended = marks.answer(CloseMark(name="a", declared={"claimed_calls_count": 3}), pid=1, uid=7)
        assert isinstance(opened, Opened)
        assert ended == Closed(run=opened.run)
        assert "found none; this daemon started" in refused(marks, CloseMark(name="a"))

    asyncio.run(course())
    assert windows.opened == [(child, 7, {"untrusted": True, "own_processes": f"session {child}"})]
    assert windows.closed == [("run-1", {"claimed_calls_count": 3})]


def test_mark_of_another_user_is_hidden(marks: HeldMarks, windows: _Windows) -> None:
    """Two users may use one name without effect on each other; only root may pass another owner."""

    async def course() -> None:
        marks.answer(begin("secret"), pid=ME, uid=7)
        assert "secret" not in refused(marks, CloseMark(name="b"), uid=8)
        assert "found none" in refused(marks, CloseMark(name="secret"), uid=8)
        assert "expected uid 7 or root, found uid 8" in refused(marks, CloseMark(name="secret", uid=7), uid=8)
        assert "expected uid 7 or root" in refused(marks, begin(uid=7), uid=8)
        marks.answer(begin("secret"), pid=ME, uid=8)
        assert marks.answer(CloseMark(name="secret", uid=7), pid=ME, uid=0) == Closed(run="run-1")

    asyncio.run(course())
    assert [uid for _, uid, _ in windows.opened] == [7, 8]


def test_mark_names_are_unique_per_user_and_bounded(marks: HeldMarks) -> None:
    """A second mark of a name is refused, and the number of a user's open marks is bounded."""

    async def course() -> None:
        marks.answer(begin(), pid=ME, uid=7)
        assert "expected an unused name, found your mark open" in refused(marks, begin())
        for number in range(MARKS_COUNT - 1):
            marks.answer(begin(f"m{number}"), pid=ME, uid=7)
        assert f"fewer than {MARKS_COUNT} open marks of your user" in refused(marks, begin("one more"))
        marks.answer(begin("one more"), pid=ME, uid=8)
        assert "found 'a', 'm0'" in refused(marks, CloseMark(name="nobody's"))

    asyncio.run(course())


def test_expired_mark_is_abandoned_and_still_answered(marks: HeldMarks, windows: _Windows) -> None:
    """Each end of an expired mark returns its run, even repeatedly; a new mark may reuse the name."""

    async def course() -> None:
        marks.answer(begin(expires_s=0.02), pid=ME, uid=7)
        await wait_until_async(lambda: windows.abandoned, what="the mark expires")
        assert marks.answer(CloseMark(name="a"), pid=ME, uid=7) == Closed(run="run-1")
        assert marks.answer(CloseMark(name="a"), pid=ME, uid=7) == Closed(run="run-1")
        marks.answer(begin(expires_s=0.02), pid=ME, uid=7)
        await wait_until_async(lambda: len(windows.abandoned) == 2, what="the second one expires")
        marks.answer(begin(), pid=ME, uid=7)
        assert marks.answer(CloseMark(name="a"), pid=ME, uid=7) == Closed(run="run-3")

    asyncio.run(course())
    assert windows.abandoned[0] == ("run-1", "the mark expired after 0.02 s without `gpuwatch mark end`")
    assert [run for run, _ in windows.closed] == ["run-3"]


def test_held_mark_without_untrusted_refuses_a_claim(marks: HeldMarks, windows: _Windows) -> None:
    """A claimed number is accepted for untrusted code only; a refusal leaves the mark open."""

    async def course() -> None:
        marks.answer(begin(), pid=ME, uid=7)
        message = refused(marks, CloseMark(name="a", declared={"claimed_calls_count": 3}))
        assert message == "--calls, --call-time: expected a mark begun with --untrusted, found 'a'; begin it with --untrusted"
        assert marks.answer(CloseMark(name="a"), pid=ME, uid=7) == Closed(run="run-1")

    asyncio.run(course())
    assert windows.closed == [("run-1", {})]


def test_mark_of_a_reused_pid_is_abandoned(windows: _Windows, tmp_path: Path) -> None:
    """A mark is abandoned if its PID has a new start time; a mark with an unchanged process is closed."""
    stands_in: Any = windows
    marks = HeldMarks(stands_in, proc=processes(tmp_path, {40: (1, 40, 7), 50: (1, 50, 7)}))

    async def course() -> None:
        for name, pid in (("reused", 40), ("kept", 50)):
            marks.answer(begin(name, own="pids", pids=[pid]), pid=50, uid=7)
        processes(tmp_path, {40: (1, 40, 7)}, start=900)
        for name in ("reused", "kept"):
            marks.answer(CloseMark(name=name), pid=50, uid=7)

    asyncio.run(course())
    assert windows.abandoned == [("run-1", "the measured process 40 ended, and another process reused the PID")]
    assert windows.closed == [("run-2", {})]


def test_mark_measures_a_users_or_named_processes(marks: HeldMarks, windows: _Windows, child: int) -> None:
    """A mark measures a user's or named processes; other users' processes and invalid terms are refused."""
    me = os.getuid()

    async def course() -> None:
        marks.answer(begin("user", own="user"), pid=child, uid=OTHER)
        assert "found --own user as root" in refused(marks, begin("root", own="user"), uid=0)
        marks.answer(begin("pids", own="pids", pids=[child]), pid=ME, uid=me)
        assert "found [4000000]" in refused(marks, begin("gone", own="pids", pids=[4_000_000]), uid=me)
        assert f"found [{child}]" in refused(marks, begin("theirs", own="pids", pids=[child]), uid=OTHER)
        assert "found none" in refused(marks, begin("empty", own="pids"), uid=me)
        assert "--expires: expected 0.01 to 2.6784e+06 s, found nan" in refused(marks, begin(expires_s=float("nan")), uid=me)
        assert "a non-empty name" in refused(marks, begin(""), uid=me)
        assert "PID namespace" in refused(marks, begin("hidden"), pid=0, uid=me)

    asyncio.run(course())
    assert [(pid, declared["own_processes"]) for pid, _, declared in windows.opened] == [
        (child, f"user {OTHER}"),
        (child, f"processes {child}"),
    ]
