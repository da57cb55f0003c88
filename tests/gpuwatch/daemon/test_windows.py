"""Tests of a daemon's windows: users are separated, and failures leave no client waiting."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gpuwatch.daemon.flush import Flushing
from gpuwatch.daemon.judged_windows import JudgedWindows
from gpuwatch.daemon.judgement import Judgement
from gpuwatch.daemon.tracked_window import WindowServices
from gpuwatch.daemon.user_turns import UserThreads
from gpuwatch.daemon.window_limits import OWN_TIMES_COUNT
from gpuwatch.daemon.windows import Windows
from gpuwatch.errors import UsageError
from gpuwatch.host.mark_members import KinMembers
from gpuwatch.host.processes import Identities, Identity
from gpuwatch.store import Reader, Store
from gpuwatch.wire import messages
from tests.waiting import PATIENCE_S, let_pass, wait_until_async

MINE, THEIRS, ROOT = 1000, 1001, 0
_T = TypeVar("_T")


class NoGpus:
    """A machine without GPUs, edges or process lists."""

    uuids: tuple[str, ...] = ()
    name = "nvml"
    is_simulated = False
    absence = "no driver"

    @property
    def source(self) -> NoGpus:
        return self

    edges = latest = source

    def window_opened(self, uuids: object) -> None: ...
    def window_closed(self, uuids: object) -> None: ...
    async def edge(self, uuids: object) -> None: ...
    async def read_power(self, uuids: object) -> None: ...
    def process_list(self, uuid: str) -> None: ...
    async def hand_over(self, uuids: object) -> tuple[str, ...]:
        return ()


class MockJudge:
    """A judge that gives an unproven verdict, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.asked: list[str] = []

    async def warm(self) -> None: ...

    async def judge(self, run: str, length_s: float = 0.0) -> Judgement:
        self.asked.append(run)
        if self.fails:
            raise ZeroDivisionError(run)
        return Judgement(why="nothing was seen")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state", source="nvml", boot_id="boot")
    yield store
    store.close()


class FullDisk(Store):
    """A store whose flush fails, with a full disk as the reason."""

    def flush(self, timeout_s: float = 1.0) -> bool:
        return False

    def statistics(self) -> dict[str, Any]:
        return super().statistics() | {"refused": "the disk is full"}


class NoThreads(NoGpus):
    """A machine that cannot start another thread."""

    async def edge(self, uuids: object) -> None:
        raise RuntimeError("can't start new thread")


def windows(
    store: Store,
    tmp_path: Path,
    judge: Any = None,
    *,
    gpus: Any = None,
    threads: Executor | None = None,
    flushing: Flushing | None = None,
    host_s: float = 60.0,
    identities: Identities | None = None,
    **options: Any,
) -> Windows:
    """Return windows over mock GPUs and a mock judge, which share no type with the real ones."""
    gpus, judge = gpus or NoGpus(), judge or MockJudge()
    pool = UserThreads(threads or ThreadPoolExecutor(2), patience_s=host_s)
    services = WindowServices(gpus=gpus, store=store, judge=judge, flushing=flushing or Flushing(store), threads=pool)
    services = replace(services, identities=identities or services.identities)
    return Windows(services, JudgedWindows(tmp_path / "state", "boot"), boot_id="boot", **options)


async def opened(held: Windows, uid: int) -> tuple[str, int]:
    run, _ = held.open(messages.Open(), pid=0, uid=uid)
    return run.id, run.begin_ns


def test_failed_edge_leaves_no_client_waiting(store: Store, tmp_path: Path) -> None:
    """A window whose edges cannot be read is unproven, and does not keep the daemon alive."""

    async def body() -> None:
        held = windows(store, tmp_path, gpus=NoThreads())
        run, begin_ns = await opened(held, MINE)
        held.close(messages.Close(run=run, begin_ns=begin_ns, end_ns=begin_ns), uid=MINE)
        judged = await held.verdicts(run, uid=MINE, wait_s=PATIENCE_S)
        assert judged.status == "unproven"
        assert "the daemon failed on this window: RuntimeError" in judged.why
        assert held.tracked_count == 0

    asyncio.run(body())


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
        store.flush(PATIENCE_S)
        later = windows(store, tmp_path)  # has the run only in the store
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


def test_failing_judge_leaves_no_client_waiting(store: Store, tmp_path: Path) -> None:
    async def body() -> None:
        held = windows(store, tmp_path, MockJudge(fails=True))
        run, begin_ns = await opened(held, MINE)
        held.close(messages.Close(run=run, begin_ns=begin_ns, end_ns=begin_ns), uid=MINE)
        judged = await held.verdicts(run, uid=MINE, wait_s=PATIENCE_S)
        assert judged.status == "unproven"
        assert "ZeroDivisionError" in judged.why
        assert held.tracked_count == 0

    asyncio.run(body())


class Dying(ThreadPoolExecutor):
    """A pool that, once ``dead``, accepts work without running it, as if no thread could start."""

    dead = False
    done_count = 0

    def submit(self, work: Callable[..., _T], /, *arguments: Any, **options: Any) -> Future[_T]:
        if self.dead:
            return Future()
        future = super().submit(work, *arguments, **options)
        future.add_done_callback(self._count)
        return future

    def _count(self, _: object) -> None:
        self.done_count += 1


def test_dead_threads_leave_no_window_waiting(store: Store, tmp_path: Path) -> None:
    """Dead threads leave no client waiting, and the daemon may exit."""

    async def body() -> None:
        threads = Dying(2)
        held = windows(store, tmp_path, threads=threads, host_s=0.3)
        run, _ = held.open(messages.Open(), pid=os.getpid(), uid=MINE)
        await wait_until_async(lambda: threads.done_count >= 5, what="the window's process and its CPU pressure are read")
        threads.dead = True
        async with asyncio.timeout(PATIENCE_S):
            held.close(messages.Close(run=run.id, begin_ns=run.begin_ns, end_ns=run.begin_ns), uid=MINE)
            judged = await held.verdicts(run.id, uid=MINE, wait_s=PATIENCE_S)
        assert judged.status == "unproven"
        assert held.tracked_count == 0

    asyncio.run(body())


def test_window_without_stored_readings_is_not_judged(tmp_path: Path) -> None:
    """A window whose readings could not be stored is unproven for that reason, and the judge does not run."""

    async def body() -> None:
        store = FullDisk(tmp_path / "state", source="nvml", boot_id="boot")
        judge = MockJudge()
        held = windows(store, tmp_path, judge, flushing=Flushing(store, patience_s=0.1))
        run, begin_ns = await opened(held, MINE)
        held.close(messages.Close(run=run, begin_ns=begin_ns, end_ns=begin_ns), uid=MINE)
        judged = await held.verdicts(run, uid=MINE, wait_s=PATIENCE_S)
        assert judged.status == "unproven"
        assert judged.why.startswith("readings could not be stored: the disk is full")
        assert judge.asked == []
        store.close()

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
    """After one user abandons 2048 windows, another user's window is judged right after the current one."""

    async def body() -> None:
        judge = Gated()
        flushing = CountedFlushing(store)
        held = windows(store, tmp_path, judge, flushing=flushing)
        runs = [(await opened(held, MINE))[0] for _ in range(2048)]
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
    """Queries of the operating system about windows alternate between users, even if one user has 50 windows."""

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
    """A window is stored with its end at once, so that later windows do not seem to overlap it."""

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
    """The judge signs a short window after its process is named, even if a busy machine delays the name."""

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
