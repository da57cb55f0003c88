"""Tests of the timers without a GPU, and of the common parts of all."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gpuwatch import timers
from gpuwatch.timers import HostTimer, TimingPlan


class Ticking:
    """A clock that advances only with work."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def work(self, ns: int) -> None:
        self.now_ns += ns


def test_the_host_timer_reads_the_mean_of_an_entrys_calls() -> None:
    clock = Ticking()
    taken = HostTimer(now_ns=clock).take(TimingPlan(calls=(lambda: clock.work(100), lambda: clock.work(300)), calls_count=4), 3)
    assert taken.timings.took_s.tolist() == pytest.approx([200e-9] * 3)
    assert taken.timings.calls_count == 4
    assert taken.timings.at_ns.tolist() == [0, 800, 1600]
    assert taken.timings.sm_clock_mhz is None


def test_what_is_done_before_an_entry_is_not_timed() -> None:
    clock = Ticking()
    plan = TimingPlan(calls=(lambda: clock.work(100),), before=lambda: clock.work(5000))
    taken = HostTimer(now_ns=clock).take(plan, 2)
    assert taken.timings.took_s.tolist() == pytest.approx([100e-9] * 2)
    assert taken.other is not None
    assert taken.other.kinds == ("flush", "flush")
    assert taken.other.spans_ns == ((0, 5000), (5100, 10_100))


def test_what_calls_only_asked_for_is_waited_for() -> None:
    clock = Ticking()
    pending: list[int] = []

    def settle() -> None:
        while pending:
            clock.work(pending.pop())

    taken = HostTimer(settle, clock).take(TimingPlan(calls=(lambda: pending.append(700),)), 2)
    assert taken.timings.took_s.tolist() == pytest.approx([700e-9] * 2)


def test_its_overhead_is_what_it_reads_around_nothing() -> None:
    assert 0 <= HostTimer().overhead_s() < 1e-3


def test_real_work_takes_real_time() -> None:
    taken = HostTimer().take(TimingPlan(calls=(lambda: sum(range(10_000)),)), 10)
    assert (taken.timings.took_s > 1e-6).all()
    assert (np.diff(taken.timings.at_ns) > 0).all()


def test_what_a_call_raises_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        HostTimer().take(TimingPlan(calls=(lambda: 1 / 0,)), 1)


def test_every_entry_makes_the_same_calls() -> None:
    made: list[int] = []
    plan = TimingPlan(calls=tuple(lambda n=n: made.append(n) for n in range(3)), calls_count=5)  # type: ignore[misc]
    HostTimer().take(plan, 2)
    assert made == [0, 1, 2, 0, 1] * 2


def test_without_a_context_on_a_gpu_the_host_is_timed() -> None:
    with timers.opened(None) as found:
        assert found.name == "host"
    if "torch" not in sys.modules:
        timers.settle()()
