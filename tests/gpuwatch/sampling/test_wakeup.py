"""Tests of Wakeup, a threading.Event for one waiter: both return equal results for any steps, and no wake-up is lost."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gpuwatch.clock import MonotonicClock
from gpuwatch.sampling.wakeup import Wakeup
from tests.examples import share_of
from tests.waiting import PATIENCE_S


class LikeAnEvent(RuleBasedStateMachine):
    """The same steps on a Wakeup and on a threading.Event."""

    def __init__(self) -> None:
        super().__init__()
        self.wake, self.event = Wakeup(), threading.Event()

    @rule()
    def set(self) -> None:
        self.wake.set()
        self.event.set()

    @rule()
    def clear(self) -> None:
        self.wake.clear()
        self.event.clear()

    @rule(timeout=st.sampled_from([-1.0, 0.0, 0.0001]))
    def wait(self, timeout: float) -> None:
        assert self.wake.wait(timeout) == self.event.wait(timeout)

    @rule()
    def look(self) -> None:
        assert self.wake.is_set() == self.event.is_set()


TestLikeAnEvent = LikeAnEvent.TestCase
TestLikeAnEvent.settings = settings(max_examples=share_of(40), stateful_step_count=20)


def test_wait_lasts_its_timeout() -> None:
    """A wait without a wake-up lasts its whole timeout and returns False."""
    begin_s = time.monotonic()
    assert not Wakeup().wait(0.05)
    assert time.monotonic() - begin_s >= 0.05


def test_waiting_thread_is_woken_by_another_thread() -> None:
    wake = Wakeup()
    threading.Timer(0.05, wake.set).start()
    assert wake.wait(PATIENCE_S)
    assert wake.wait(PATIENCE_S)  # and stays set


def test_wait_without_a_timeout_is_woken() -> None:
    wake = Wakeup()
    threading.Timer(0.02, wake.set).start()
    assert wake.wait()


@pytest.mark.parametrize("setters_count", [1, 4])
def test_values_written_before_a_wake_up_are_visible(setters_count: int) -> None:
    """After a wake-up, a waiter that clears the flag reads the values written before the wake-up."""
    wake, each_count = Wakeup(), 5000
    wanted = [0] * setters_count

    def order(who: int) -> None:
        for number in range(1, each_count + 1):
            wanted[who] = number
            wake.set()

    threads = [threading.Thread(target=order, args=(who,), daemon=True) for who in range(setters_count)]
    for thread in threads:
        thread.start()
    seen = 0
    while seen < setters_count * each_count:
        assert wake.wait(PATIENCE_S)
        wake.clear()
        seen = sum(wanted)
    for thread in threads:
        thread.join(PATIENCE_S)
    wake.clear()
    assert not wake.wait(0.01)


def test_no_wake_up_is_lost_between_two_threads() -> None:
    ping, pong, rounds_count = Wakeup(), Wakeup(), 3000

    def answer() -> None:
        for _ in range(rounds_count):
            assert ping.wait(PATIENCE_S)
            ping.clear()
            pong.set()

    other = threading.Thread(target=answer, daemon=True)
    other.start()
    for _ in range(rounds_count):
        ping.set()
        assert pong.wait(PATIENCE_S)
        pong.clear()
    other.join(PATIENCE_S)
    assert not other.is_alive()


@given(ahead_ns=st.integers(-10_000_000, 2_000_000))
@settings(max_examples=share_of(30))
def test_clock_waits_for_a_wakeup_like_an_event(ahead_ns: int) -> None:
    clock, wake = MonotonicClock(), Wakeup()
    due_ns = clock.now_ns() + ahead_ns
    assert not clock.wait_until(due_ns, wake)
    assert clock.now_ns() >= due_ns
    wake.set()
    assert clock.wait_until(clock.now_ns() + round(PATIENCE_S * 1e9), wake)
