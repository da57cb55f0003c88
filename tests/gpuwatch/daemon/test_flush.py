"""Tests of the store's flush before judging: concurrent ends share a wait, and unstored data is reported."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from gpuwatch.daemon.flush import Flushing
from tests.waiting import wait_until_async


class Disk:
    """A store whose flushes return these answers, and repeat the last one.  A closed ``gate`` blocks every flush."""

    def __init__(self, *answers: bool, refused: str | None = None, full: bool = False) -> None:
        self._answers = list(answers)
        self._full = full
        self._refused = refused
        self.flushes_count = 0
        self.allowed_s: list[float] = []
        self.gate = threading.Event()
        self.gate.set()

    def flush(self, timeout_s: float) -> bool:
        self.flushes_count += 1
        self.allowed_s.append(timeout_s)
        if not self.gate.wait(timeout_s):
            return False
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def statistics(self) -> dict[str, Any]:
        return {"refused": self._refused, "disk_full": self._full}


def test_successful_flush_gives_no_refusal() -> None:
    assert asyncio.run(Flushing(Disk(True)).refusal()) is None


def test_flush_tries_again_after_a_refusal() -> None:
    disk = Disk(False, True)
    assert asyncio.run(Flushing(disk).refusal()) is None
    assert disk.flushes_count == 2


def test_flush_waits_for_a_slow_disk() -> None:
    disk = Disk(True)
    disk.gate.clear()
    threading.Timer(0.3, disk.gate.set).start()
    assert asyncio.run(Flushing(disk).refusal()) is None


def test_flush_of_a_silent_store_times_out() -> None:
    """The wait for a store that never answers ends after ``patience_s``."""
    disk = Disk(True)
    disk.gate.clear()
    assert asyncio.run(Flushing(disk, patience_s=0.2).refusal()) == "the commit timed out"
    assert max(disk.allowed_s) <= 0.2
    disk.gate.set()


def test_flush_returns_the_reason_of_a_refusing_store() -> None:
    why = "OperationalError: database is locked"
    assert asyncio.run(Flushing(Disk(False, refused=why), patience_s=0.2).refusal()) == why


def test_flush_does_not_wait_for_a_full_disk() -> None:
    """A full disk ends the wait, because the store drops the refused rows."""
    disk = Disk(False, refused="the disk is full", full=True)
    assert asyncio.run(Flushing(disk).refusal()) == "the disk is full"
    assert disk.flushes_count == 1


def test_flush_of_a_leaving_daemon_is_not_repeated() -> None:
    disk = Disk(False, refused="the disk is full")
    flushing = Flushing(disk)
    flushing.leave()
    assert asyncio.run(flushing.refusal()) == "the disk is full"
    assert disk.flushes_count == 1


def test_windows_that_end_together_share_a_flush() -> None:
    """Windows that end together share a flush, which begins after the last end."""
    disk = Disk(True)

    async def body() -> list[str | None]:
        disk.gate.clear()
        first = asyncio.create_task(flushing.refusal())
        await wait_until_async(lambda: disk.flushes_count, what="the first flush")
        rest = [asyncio.create_task(flushing.refusal()) for _ in range(50)]
        await asyncio.sleep(0)  # each runs until it waits for a flush
        disk.gate.set()
        return await asyncio.gather(first, *rest)

    flushing = Flushing(disk)
    assert asyncio.run(body()) == [None] * 51
    assert disk.flushes_count == 2
