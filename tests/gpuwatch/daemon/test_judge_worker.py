"""Tests of the judge's worker: separate results for windows, a late or failing worker, its end, and its log."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import psutil
import pytest

from annotate.verdict import Answered, Finding, Status, Verdict
from gpuwatch.daemon.judge_worker import log_failed_rules
from gpuwatch.daemon.judging import Judge
from gpuwatch.daemon.worker_patience import WorkerPatience
from gpuwatch.store import Store
from gpuwatch.store.run import UNJUDGED
from tests.gpuwatch.live import ended
from tests.waiting import let_pass_async, wait_until_async


async def end(judge: Judge) -> None:
    """End the judge's worker before the event loop closes: asyncio reports a worker that ends later as an error."""
    await judge.close()
    await let_pass_async(0.05, "asyncio closes the pipes of the ended worker")


def test_slow_worker_answers_each_window_separately(tmp_path: Path) -> None:
    """A slow start of the worker does not give one window another window's verdict."""
    Store(tmp_path, source="simulated", boot_id="b").close()

    async def asked() -> list[str]:
        judge = Judge(tmp_path)
        try:
            await judge.warm(0.0)  # the imports take longer than 0 s
            return [(await judge.judge(run)).why for run in ("first0", "second0")]
        finally:
            await end(judge)

    first, second = asyncio.run(asked())
    assert first.startswith("run first0: expected a run")
    assert second.startswith("run second0: expected a run")


@pytest.mark.parametrize(("is_starved", "says"), [(True, "run starved: expected a run"), (False, "failed twice")])
def test_worker_is_given_up_only_without_progress(tmp_path: Path, *, is_starved: bool, says: str) -> None:
    """The judge waits for a worker that gets little CPU time, and gives up a worker that uses none."""
    Store(tmp_path, source="simulated", boot_id="b").close()
    ticks = itertools.count()

    def cpu_s(pid: int) -> float:
        return next(ticks) * 1e-6 if is_starved else 0.0

    async def asked() -> str:
        judge = Judge(
            tmp_path, patience=WorkerPatience(answer_s=0.05, starved_ratio=1e6, cpu_s=cpu_s)
        )  # the imports take longer than 0.05 s
        try:
            return (await judge.judge("starved")).why
        finally:
            await end(judge)

    assert says in asyncio.run(asked())


def test_ctrl_c_does_not_reach_a_starting_worker(tmp_path: Path) -> None:
    """A starting worker is not in the daemon's process group, which gets a terminal's Ctrl-C."""

    async def started() -> list[int]:
        judge = Judge(tmp_path)
        try:
            await judge.warm()
            return [
                os.getpgid(each.pid) for each in psutil.Process().children() if "gpuwatch.daemon.judge_worker" in each.cmdline()
            ]
        finally:
            await end(judge)

    (group,) = asyncio.run(started())
    assert group != os.getpgid(0)


def test_idle_worker_exits_and_is_replaced(tmp_path: Path) -> None:
    """The judge kills an idle worker, and starts another with one thread for the next window."""
    Store(tmp_path, source="simulated", boot_id="b").close()

    def workers() -> list[psutil.Process]:
        living = [each for each in psutil.Process().children() if not ended(each.pid)]
        return [each for each in living if "gpuwatch.daemon.judge_worker" in each.cmdline()]

    async def asked() -> tuple[str, int]:
        judge = Judge(tmp_path, rest_s=0.01)
        try:
            await judge.warm()
            await wait_until_async(lambda: not workers(), what="the worker leaves")
            judging = asyncio.create_task(judge.judge("run0"))
            (worker,) = await wait_until_async(workers, what="another worker")
            threads_count = worker.num_threads()
            return (await judging).why, threads_count
        finally:
            await end(judge)

    why, threads_count = asyncio.run(asked())
    assert why.startswith("run run0: expected a run")
    assert threads_count == 1


def test_closed_judge_ends_a_judging_quietly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A judge that is closed during a judging starts no other worker, and gives the daemon's end as the reason."""

    async def closed() -> tuple[str, list[psutil.Process]]:
        judge = Judge(tmp_path)
        judging = asyncio.create_task(judge.judge("run0"))
        await wait_until_async(lambda: psutil.Process().children(), what="the worker starts")
        await end(judge)
        why = (await judging).why
        return why, [each for each in psutil.Process().children() if "gpuwatch.daemon.judge_worker" in each.cmdline()]

    assert asyncio.run(closed()) == (UNJUDGED, [])
    assert not caplog.records


def test_daemon_survives_a_worker_that_cannot_start(tmp_path: Path) -> None:
    log = tmp_path / "not" / "there.log"

    async def warmed() -> str:
        judge = Judge(tmp_path, log=log)
        await judge.warm()
        return (await judge.judge("run0")).why

    assert "failed twice" in asyncio.run(warmed())


def test_judge_worker_logs_the_rules_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the run, the failed rule and the error."""
    failed = Finding(rule="outliers", answered=Answered.UNOBSERVED, failure="IndexError")
    fine = Finding(rule="outliers", answered=Answered.CLEAR)
    verdicts = [Verdict(status=Status.VALID, claim="burst", findings=found) for found in ((fine,), (fine, failed))]
    log_failed_rules("run7", verdicts)
    assert [record.getMessage() for record in caplog.records] == ["run run7: rules failed: outliers (IndexError)"]
