"""Tests of the host's timer, and of the common parts of all timers."""

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


def test_host_entry_holds_the_mean_of_its_calls() -> None:
    clock = Ticking()
    taken = HostTimer(now_ns=clock).take(TimingPlan(calls=(lambda: clock.work(100), lambda: clock.work(300)), calls_count=4), 3)
    assert taken.timings.took_s.tolist() == pytest.approx([200e-9] * 3)
    assert taken.timings.calls_count == 4
    assert taken.timings.at_ns.tolist() == [0, 800, 1600]
    assert taken.timings.sm_clock_mhz is None


def test_host_timer_excludes_the_work_before_an_entry() -> None:
    clock = Ticking()
    plan = TimingPlan(calls=(lambda: clock.work(100),), before=lambda: clock.work(5000))
    taken = HostTimer(now_ns=clock).take(plan, 2)
    assert taken.timings.took_s.tolist() == pytest.approx([100e-9] * 2)
    assert taken.other is not None
    assert taken.other.kinds == ("flush", "flush")
    assert taken.other.spans_ns == ((0, 5000), (5100, 10_100))


def test_host_timer_waits_for_pending_work() -> None:
    clock = Ticking()
    pending: list[int] = []

    def settle() -> None:
        while pending:
            clock.work(pending.pop())

    taken = HostTimer(settle, clock).take(TimingPlan(calls=(lambda: pending.append(700),)), 2)
    assert taken.timings.took_s.tolist() == pytest.approx([700e-9] * 2)


def test_host_timer_overhead_is_small() -> None:
    assert 0 <= HostTimer().overhead_s() < 1e-3


def test_host_timer_times_real_work() -> None:
    taken = HostTimer().take(TimingPlan(calls=(lambda: sum(range(10_000)),)), 10)
    assert (taken.timings.took_s > 1e-6).all()
    assert (np.diff(taken.timings.at_ns) > 0).all()


def test_exception_of_a_host_timed_call_propagates() -> None:
    with pytest.raises(ZeroDivisionError):
        HostTimer().take(TimingPlan(calls=(lambda: 1 / 0,)), 1)


def test_entries_make_the_same_calls() -> None:
    made: list[int] = []
    plan = TimingPlan(calls=tuple(lambda n=n: made.append(n) for n in range(3)), calls_count=5)  # type: ignore[misc]
    HostTimer().take(plan, 2)
    assert made == [0, 1, 2, 0, 1] * 2


def test_default_timer_without_a_context_is_the_hosts() -> None:
    with timers.opened(None) as found:
        assert found.name == "host"
    if "torch" not in sys.modules:
        timers.settle()()
