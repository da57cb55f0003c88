"""Tests that failures of a daemon's parts leave no client of a window waiting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from gpuwatch.daemon.flush import Flushing
from gpuwatch.store import Store
from gpuwatch.wire import messages
from tests.gpuwatch.daemon.windows_double import MINE, MockJudge, NoGpus, opened, windows
from tests.waiting import PATIENCE_S, wait_until_async

_T = TypeVar("_T")


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
