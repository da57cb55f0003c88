"""Tests of a daemon's windows: separate users, parents, and the order of judging."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gpuwatch.daemon.flush import Flushing
from gpuwatch.daemon.judgement import Judgement
from gpuwatch.daemon.window_limits import OWN_TIMES_COUNT
from gpuwatch.errors import UsageError
from gpuwatch.host.mark_members import KinMembers
from gpuwatch.host.processes import Identities, Identity
from gpuwatch.store import Reader, Store
from gpuwatch.wire import messages
from tests.gpuwatch.daemon.windows_double import MINE, ROOT, THEIRS, MockJudge, opened, windows
from tests.waiting import PATIENCE_S, let_pass, wait_until_async

_T = TypeVar("_T")


def test_window_of_another_user_is_refused_except_to_root(store: Store, tmp_path: Path) -> None:
    """Another user can neither close nor read a window; root can read the window."""

    async def body() -> None:
        held = windows(store, tmp_path)
        run, begin_ns = await opened(held, MINE)
        with pytest.raises(UsageError, match="no window"):
            held.close(messages.Close(run=run, begin_ns=begin_ns, end_ns=begin_ns), uid=THEIRS)
        with pytest.raises(UsageError, match="no window"):
            await held.verdicts(run, uid=THEIRS, wait_s=1.0)
        held.close(messages.Close(run=run, begin_ns=begin_ns, end_ns=begin_ns), uid=MINE)
        assert (await held.verdicts(run, uid=ROOT, wait_s=PATIENCE_S)).status == "unproven"
        assert (await held.verdicts(run, uid=MINE, wait_s=PATIENCE_S)).why == "nothing was seen"
        with pytest.raises(UsageError, match="no window"):
            await held.verdicts(run, uid=THEIRS, wait_s=1.0)
        later = windows(store, tmp_path)  # has the run only in the store, which has a verdict before its client does
        assert (await later.verdicts(run, uid=MINE, wait_s=1.0)).status == "unproven"
        with pytest.raises(UsageError, match="no window"):
            await later.verdicts(run, uid=THEIRS, wait_s=1.0)

    asyncio.run(body())


def test_windows_below_untrusted_code_are_untrusted(store: Store, tmp_path: Path) -> None:
    """A window opened by untrusted code is untrusted with any parent; windows of other processes or users are not."""

    async def body() -> None:
        held = windows(store, tmp_path)
        me, child = os.getpid(), subprocess.Popen(["sleep", "60"])
        try:
            outer, _ = held.open(messages.Open(declared={"untrusted": True}), pid=me, uid=MINE)
            for request in (messages.Open(), messages.Open(parent="another"), messages.Open(parent=outer.id)):
                inner, _ = held.open(request, pid=child.pid, uid=MINE)
                assert inner.declared == {"untrusted": True}
                assert inner.parent == (request.parent or outer.id)
            beside, _ = held.open(messages.Open(), pid=1, uid=MINE)
            theirs, _ = held.open(messages.Open(), pid=child.pid, uid=THEIRS)
            assert beside.declared == theirs.declared == {}
            assert beside.parent is theirs.parent is None
        finally:
            child.kill()
            child.wait()
        await held.finish()

    asyncio.run(body())


def test_window_in_a_mark_has_the_mark_as_parent(store: Store, tmp_path: Path) -> None:
    """A window inside a mark has the mark as its parent, even before the mark's next check of processes."""

    async def body() -> None:
        held = windows(store, tmp_path)
        mark, _ = held.open(messages.Open(), pid=os.getpid(), uid=MINE, own=KinMembers(session=os.getsid(0)))
        inner, _ = held.open(messages.Open(), pid=os.getpid(), uid=MINE)
        assert (inner.parent, inner.declared) == (mark.id, {})
        await held.finish()

    asyncio.run(body())


class CountedFlushing(Flushing):
    """A flush that always succeeds and counts the windows passed on to the judge."""

    passed_count = 0

    async def refusal(self) -> str | None:
        self.passed_count += 1
        return None


class Gated(MockJudge):
    """A judge that holds every answer back until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def judge(self, run: str, length_s: float = 0.0) -> Judgement:
        judgement = await super().judge(run, length_s)
        await self.gate.wait()
        return judgement


def test_abandoned_windows_delay_others_by_one_window(store: Store, tmp_path: Path) -> None:
    """After one user abandons hundreds of windows, another user's window is judged right after the current one."""

    async def body() -> None:
        judge = Gated()
        flushing = CountedFlushing(store)
        held = windows(store, tmp_path, judge, flushing=flushing)
        runs = [(await opened(held, MINE))[0] for _ in range(300)]
        for run in runs:
            held.abandon(run)
        await wait_until_async(lambda: flushing.passed_count == len(runs))
        theirs, begin_ns = await opened(held, THEIRS)
        held.close(messages.Close(run=theirs, begin_ns=begin_ns, end_ns=begin_ns), uid=THEIRS)
        await wait_until_async(lambda: flushing.passed_count == len(runs) + 1)
        await wait_until_async(lambda: len(judge.asked) == 1)
        judge.gate.set()
        assert (await held.verdicts(theirs, uid=THEIRS, wait_s=60.0)).why == "nothing was seen"
        assert judge.asked.index(theirs) == 1
        await wait_until_async(lambda: held.tracked_count == 0)
        assert sorted(judge.asked) == sorted([*runs, theirs])

    asyncio.run(body())


class ByHand(Executor):
    """A queue that keeps its work until the test runs it."""

    def __init__(self) -> None:
        self.given: list[tuple[Future[Any], Callable[[], Any], tuple[Any, ...]]] = []

    def submit(self, work: Callable[..., _T], /, *arguments: Any, **options: Any) -> Future[_T]:
        future: Future[_T] = Future()
        self.given.append((future, partial(work, *arguments, **options), arguments))
        return future

    def do_next(self) -> None:
        future, work, _ = self.given.pop(0)
        future.set_result(work())

    def pids(self) -> list[int]:
        return [arguments[0] for _, _, arguments in self.given if arguments]


def test_host_reads_take_turns_by_user(store: Store, tmp_path: Path) -> None:
    """A user's query of the operating system waits for one query about another user's 50 windows, not for all."""

    async def body() -> None:
        threads = ByHand()
        held = windows(store, tmp_path, threads=threads, host_s=60.0)
        mine, theirs = os.getpid(), os.getppid()
        for uid, pid in (*[(MINE, mine)] * 50, (THEIRS, theirs)):
            held.open(messages.Open(), pid=pid, uid=uid)
        for _ in range(100):  # every task waits for a thread
            await asyncio.sleep(0)
        assert theirs not in threads.pids()
        assert threads.pids().count(mine) <= 4
        threads.do_next()
        await wait_until_async(lambda: theirs in threads.pids())
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(body())


def test_times_of_one_user_leave_room_for_another(store: Store, tmp_path: Path) -> None:
    """Times beyond one user's limit are refused, and another user's window still accepts times."""
    count = messages.TIMES_AT_ONCE_COUNT
    piece = partial(messages.Times, at_ns=bytes(8 * count), took_s=bytes(8 * count))

    async def body() -> None:
        held = windows(store, tmp_path, is_shared=True)
        runs = [(await opened(held, THEIRS))[0] for _ in range(-(-OWN_TIMES_COUNT // messages.TIMES_COUNT))]
        for number in range(OWN_TIMES_COUNT // count):
            held.add_times(piece(run=runs[number * count // messages.TIMES_COUNT]), uid=THEIRS)
        with pytest.raises(UsageError, match="all your windows"):
            held.add_times(piece(run=runs[-1]), uid=THEIRS)
        mine, _ = await opened(held, MINE)
        held.add_times(piece(run=mine), uid=MINE)

    asyncio.run(body())


def test_ended_window_is_stored_with_its_end(store: Store, tmp_path: Path) -> None:
    """A window is stored with its end at once, so that later windows do not seem to overlap."""

    async def body() -> None:
        held = windows(store, tmp_path)
        run_id, begin_ns = await opened(held, MINE)
        held.end(run_id, uid=MINE, begin_ns=begin_ns, end_ns=begin_ns + 1)
        assert store.flush(PATIENCE_S)
        with Reader(tmp_path / "state") as reader:
            stored = reader.run(run_id)
        assert stored.status == "closing"
        assert stored.end_ns is not None
        held.close(messages.Close(run=run_id, begin_ns=begin_ns, end_ns=begin_ns + 1), uid=MINE)
        await held.verdicts(run_id, uid=MINE, wait_s=PATIENCE_S)

    asyncio.run(body())


def test_late_process_name_precedes_the_signature(store: Store, tmp_path: Path) -> None:
    """The judge finds the name of a short window's process in the store, even if a busy machine delays the name."""

    class Signing(MockJudge):
        async def judge(self, run: str, length_s: float = 0.0) -> Judgement:
            store.flush(PATIENCE_S)
            with Reader(tmp_path / "state") as reader:
                self.asked.append(str(reader.run(run).process))
            return Judgement(why="nothing was seen")

    def identify(_pid: int) -> Identity:
        let_pass(0.3, "the window ends before its process is named")
        return Identity(name="slow", user="me")

    async def body() -> list[str]:
        judge = Signing()
        held = windows(store, tmp_path, judge, identities=Identities(identify))
        run, _ = held.open(messages.Open(), pid=os.getpid(), uid=MINE)
        held.close(messages.Close(run=run.id, begin_ns=run.begin_ns, end_ns=run.begin_ns), uid=MINE)
        await held.finish()
        return judge.asked

    assert asyncio.run(body()) == ["slow"]
    with Reader(tmp_path / "state") as reader:
        assert [run.process for run in reader.runs()] == ["slow"]
