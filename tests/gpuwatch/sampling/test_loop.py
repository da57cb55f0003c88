"""Tests of one lane's loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from annotate.evidence import Event, Lane, Reading
from gpuwatch.clock import VirtualClock
from gpuwatch.errors import DeviceLostError
from gpuwatch.interfaces import Lost, Sweep
from gpuwatch.sampling.loop import LaneTurn, sweeps
from gpuwatch.sampling.wakeup import Wakeup
from tests.gpuwatch.scripted import UUID

MS = 1_000_000
S = 1_000_000_000


class Loop:
    """One lane on a virtual clock, with a duration per reading that the test sets."""

    def __init__(self, takes_ns: Callable[[int], int] = lambda pass_number: 0, period_ns: int = 10 * MS) -> None:
        self.clock = VirtualClock()
        self.begin_ns = self.clock.now_ns()
        self.polls_count = 0
        self.takes_ns = takes_ns
        self.fails: Exception | None = None
        self.period_ns = period_ns
        self.turn = LaneTurn("fast", UUID, Lane.FAST, self._ask, lambda: self.period_ns)
        self.wake = Wakeup()
        self.sweeps = sweeps([self.turn], self.clock, threading.Event(), self.wake)

    def _ask(self) -> tuple[Reading]:
        self.polls_count += 1
        if self.fails is not None:
            raise self.fails
        self.clock.wait_until(self.clock.now_ns() + self.takes_ns(self.polls_count), threading.Event())
        return (Reading(uuid=UUID, lane=Lane.FAST, at_ns=self.clock.now_ns(), took_ns=0),)

    def take(self, number: int) -> list[tuple[float, float, int]]:
        """Return due time in milliseconds since the start, delay in milliseconds, and missed passes."""
        found = [next(self.sweeps) for _ in range(number)]
        return [((s.due_ns - self.begin_ns) / MS, s.late_ns / MS, s.missed_count) for s in found]


def test_lateness_does_not_add_up() -> None:
    assert Loop(takes_ns=lambda n: 3 * MS).take(4) == [(0, 0, 0), (10, 0, 0), (20, 0, 0), (30, 0, 0)]


def test_overrun_makes_the_next_pass_late() -> None:
    loop = Loop(takes_ns=lambda n: 14 * MS if n == 1 else 0)
    assert loop.take(3) == [(0, 0, 0), (10, 4, 0), (20, 0, 0)]


def test_missed_deadlines_are_counted_and_not_queued() -> None:
    loop = Loop(takes_ns=lambda n: 45 * MS if n == 1 else 0)
    assert loop.take(3) == [(0, 0, 0), (40, 5, 3), (50, 0, 0)]
    assert loop.polls_count == 3


def test_new_period_holds_from_the_next_pass() -> None:
    """A new period applies from the next pass, and a hurried pass comes at the requested time."""
    loop = Loop(period_ns=50 * MS)
    loop.take(1)
    loop.period_ns = 10 * MS
    loop.turn.hurry(loop.clock.now_ns() + 2 * MS)
    loop.wake.set()
    assert [due for due, _, _ in loop.take(3)] == [2, 12, 22]


def test_hurried_passes_keep_their_spacing() -> None:
    loop = Loop(period_ns=S)
    loop.turn.spacing_ns = 100 * MS
    loop.take(1)
    loop.turn.hurry(loop.clock.now_ns())
    loop.wake.set()
    assert loop.take(1) == [(100, 0, 0)]


def test_lost_gpu_is_reported_once_and_retried() -> None:
    """A lost GPU is reported once and retried at growing intervals; the GPU's return is reported too."""
    loop = Loop(period_ns=10 * MS)
    loop.take(1)
    loop.fails = DeviceLostError(UUID, "fell off the bus")
    lost = next(loop.sweeps)
    assert isinstance(lost.observed, Lost)
    assert lost.observed.reason == "fell off the bus"
    assert loop.turn.lost == "fell off the bus"
    polls_before_count = loop.polls_count
    deadline_ns = loop.clock.now_ns() + 100 * S
    answers: list[Sweep] = []

    def until_back() -> None:
        answers.extend(next(loop.sweeps) for _ in range(2))

    retries: list[float] = []
    original = loop.turn.ask

    def noted() -> Any:
        retries.append((loop.clock.now_ns() - loop.begin_ns) / S)
        if loop.clock.now_ns() > deadline_ns:
            loop.fails = None
        return original()

    loop.turn.ask = noted
    until_back()
    gaps = [round(b - a, 2) for a, b in pairwise(retries)]
    assert gaps[:5] == [2, 4, 8, 16, 30]
    assert loop.polls_count > polls_before_count
    assert isinstance(answers[0].observed, Event)
    assert answers[0].observed.kind == "back"
    assert isinstance(answers[1].observed, Reading)
    assert loop.turn.lost is None


def test_sampling_loop_ends_when_stopped() -> None:
    stop = threading.Event()
    clock = VirtualClock()
    turn = LaneTurn("fast", UUID, Lane.FAST, lambda: (), lambda: MS)
    stop.set()
    assert list(sweeps([turn], clock, stop)) == []
