"""Tests of the thread of rare readings: its CPU budget, and the removal of lost and stale readings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest

from gpuwatch import clock
from gpuwatch.daemon.rare_reader import BUDGET_RATIO, PERIOD_S, RareReader
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.interfaces import RareReading, Source
from gpuwatch.sources.simulated.simulated_source import Simulated
from tests.waiting import wait_until


class Boards:
    """A source of rare readings only, whose boards can be lost."""

    def __init__(self, clock_ns: Callable[[], int] = clock.now_ns) -> None:
        self.failing: dict[str, Exception] = {}
        self.clock_ns = clock_ns
        self.reads: list[str] = []

    def read_rare(self, uuid: str) -> RareReading:
        self.reads.append(uuid)
        if uuid in self.failing:
            raise self.failing[uuid]
        return RareReading(uuid=uuid, at_ns=self.clock_ns(), took_ns=1, performance_state=0)


def reader(
    source: object, uuids: Sequence[str] = ("a", "b"), *, took_ns: int = 0, stop: threading.Event | None = None
) -> RareReader:
    """Return a reader that is stopped from the start, unless a stop is given, and whose passes take this CPU time."""
    ended = threading.Event()
    ended.set()
    times: Iterator[int] = count(0, took_ns) if took_ns else count(0, 0)
    found: Callable[[], Source | None] = lambda: source  # type: ignore[assignment,return-value]  # noqa: E731 - only read_rare is used
    return RareReader(found, lambda: uuids, stop or ended, period_s=0.05 if stop else PERIOD_S, cpu_ns=lambda: next(times))


def test_lost_board_leaves_and_the_others_stay() -> None:
    boards = Boards()
    found = reader(boards)
    found.read_all()
    boards.failing["a"] = DeviceLostError("a", "fell off the bus")
    found.read_all()
    assert found.latest("a") is None
    assert found.latest("b") is not None


def test_gone_driver_removes_every_reading() -> None:
    boards = Boards()
    found = reader(boards)
    found.read_all()
    boards.failing["a"] = SourceGoneError("unloaded")
    found.read_all()
    assert found.latest("a") is found.latest("b") is None
    assert boards.reads == ["a", "b", "a"]


def test_source_without_rare_readings_is_skipped() -> None:
    found = reader(object())
    found.read_all()
    assert found.latest("a") is None
    reader(None).read_all()


def test_stale_reading_is_not_shown() -> None:
    boards = Boards(lambda: clock.now_ns() - round(4 * PERIOD_S * 1e9))
    found = reader(boards)
    found.read_all()
    assert found.latest("a") is None


@pytest.mark.parametrize(("took_ms", "pause_s"), [(1.0, PERIOD_S), (20.0, PERIOD_S), (100.0, 0.1 / BUDGET_RATIO)])
def test_pause_keeps_reading_within_its_budget(took_ms: float, pause_s: float) -> None:
    """The pause is long enough that reading all boards takes at most 1/500 of a CPU core."""
    found = reader(Boards(), took_ns=round(took_ms * 1e6))
    found.read_all()
    assert found.pause_s == pytest.approx(pause_s)


def test_nothing_is_read_before_the_first_scrape() -> None:
    boards, stop = Boards(), threading.Event()
    found = reader(boards, stop=stop)
    assert boards.reads == []
    try:
        wait_until(lambda: found.latest("a") is not None, what="the thread reads after the first request")
        wait_until(lambda: len(boards.reads) > 2, what="the thread continues to read")
    finally:
        stop.set()


def test_simulated_boards_and_instances_are_read() -> None:
    source = Simulated("mig,steady-gemm", clock.MonotonicClock(), epoch_ns=clock.now_ns() - 2_000_000_000)
    boards = [device.uuid for device in source.devices() if device.parent_uuid is None]
    partitioned, whole = (source.read_rare(uuid) for uuid in boards)
    assert [each.name for each in partitioned.instances] == ["SIMULATED NVIDIA H200 MIG 3g.71gb"] * 2
    assert whole.instances == ()
    assert whole.pcie_received_bytes is not None
    assert whole.pcie_received_bytes > 0
