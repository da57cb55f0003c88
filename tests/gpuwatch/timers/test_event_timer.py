"""Tests of the GPU's timers on a mock GPU with two time lines: the host's requests and the GPU's work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gpuwatch.cuda.stamp import Stamped
from gpuwatch.measuring.prepare import is_invisible
from gpuwatch.timers import Call, TimingPlan
from gpuwatch.timers.event_timer import EventsTimer
from gpuwatch.timers.graph_timer import GraphTimer


class Event:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.at_s = 0.0

    def record(self) -> None:
        self.at_s = self._cuda.run(0.0, "event")

    def synchronize(self) -> None:
        """Do nothing, because all times are known when requested."""

    def elapsed_time(self, other: Event) -> float:
        return (other.at_s - self.at_s) * 1e3


@dataclass
class FakeCuda:
    """A stream that runs one item after the other, each after the host's request."""

    launch_s: float = 5e-6
    host_s: float = 0.0
    gpu_s: float = 0.0
    done: list[str] = field(default_factory=list)
    holds_s: list[float] = field(default_factory=list)

    def run(self, took_s: float, what: str) -> float:
        self.host_s += self.launch_s
        self.gpu_s = max(self.gpu_s, self.host_s) + took_s
        self.done.append(what)
        return self.gpu_s

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
        assert enable_timing
        return Event(self)

    def synchronize(self) -> None:
        self.host_s = self.gpu_s = max(self.host_s, self.gpu_s)

    def current_stream(self) -> FakeCuda:
        return self

    def _sleep(self, cycles: int) -> None:
        self.holds_s.append(cycles / 2e9)
        self.run(cycles / 2e9, "hold")

    def timer(self) -> EventsTimer:
        return EventsTimer(self, now_ns=lambda: round(self.host_s * 1e9))


def flushing(cuda: FakeCuda) -> Callable[[], None]:
    def flush() -> None:
        cuda.run(1e-4, "flush")

    return flush


def test_calls_and_flushes_have_separate_events() -> None:
    """Two events surround each call, and two others surround each flush."""
    cuda = FakeCuda()
    plan = TimingPlan(calls=(lambda: cuda.run(1e-3, "call"),), before=flushing(cuda))
    taken = cuda.timer().take(plan, 3)
    assert cuda.done == ["event", *["event", "flush", "event", "event", "call", "event"] * 3]
    assert taken.timings.took_s.tolist() == pytest.approx([1e-3] * 3)
    assert np.diff(taken.timings.at_ns).tolist() == pytest.approx([1.1e6] * 2, abs=2)
    assert taken.timings.sm_clock_mhz is None


def test_flushes_and_holds_are_other_work() -> None:
    """The timer declares the GPU's work outside the entries, with durations."""
    cuda = FakeCuda()
    timer = cuda.timer()
    plan = TimingPlan(calls=(lambda: cuda.run(1e-3, "call"),), before=flushing(cuda))
    first, second = timer.take(plan, 3).other, timer.take(plan, 2).other
    assert first is not None
    assert first.kinds == ("flush",) * 3
    assert first.took_s.tolist() == pytest.approx([1e-4] * 3, abs=cuda.launch_s * 1.01)
    assert second is not None
    assert second.kinds == ("hold", "flush", "flush")
    assert second.took_s[0] == pytest.approx(cuda.holds_s[-1], abs=cuda.launch_s * 1.01)
    assert (np.diff(second.at_ns) > 0).all()
    assert cuda.timer().take(TimingPlan(calls=plan.calls), 3).other is None


def test_gpu_keeps_working_while_times_are_read() -> None:
    """From the second take on, the GPU repeats the work untimed until the next take; the timer declares the repetition."""
    cuda = FakeCuda()
    timer, reading_s = cuda.timer(), 8e-3
    plan = TimingPlan(calls=(lambda: cuda.run(1e-3, "call"),))
    idle_s = []
    for _ in range(3):
        taken = timer.take(plan, 20)
        cuda.host_s += reading_s
        idle_s.append(max(0.0, cuda.host_s - cuda.gpu_s))
    assert idle_s[0] == pytest.approx(reading_s)
    assert max(idle_s[1:]) < 1e-4
    assert len(taken.timings.took_s) == 20
    assert taken.other is not None
    assert taken.other.kinds == ("hold", "filler")
    begin_ns = taken.timings.at_ns[-1] + 1e9 * taken.timings.took_s[-1]
    assert taken.other.at_ns[-1] == pytest.approx(begin_ns, abs=2)
    assert begin_ns + 1e9 * taken.other.took_s[-1] == pytest.approx(1e9 * cuda.gpu_s, abs=1e5)
    timer.rest()
    assert cuda.host_s >= cuda.gpu_s


def test_event_entry_holds_the_mean_of_its_calls() -> None:
    cuda = FakeCuda(launch_s=0.0)
    plan = TimingPlan(calls=(lambda: cuda.run(1e-4, "call"), lambda: cuda.run(3e-4, "call")), calls_count=4)
    taken = cuda.timer().take(plan, 2)
    assert taken.timings.took_s.tolist() == pytest.approx([2e-4] * 2)
    assert taken.timings.calls_count == 4


def test_events_overhead_is_the_reading_around_no_work() -> None:
    assert FakeCuda(launch_s=0.0).timer().overhead_s() == pytest.approx(0.0, abs=1e-9)
    assert FakeCuda().timer().overhead_s() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("kernel_s", [1e-3, 10e-6])
def test_second_take_holds_gpu_until_host_is_ahead(kernel_s: float) -> None:
    cuda = FakeCuda(launch_s=30e-6)
    timer = cuda.timer()
    plan = TimingPlan(calls=(lambda: cuda.run(kernel_s, "call"),))
    unheld = timer.take(plan, 100)
    assert "hold" not in cuda.done
    assert unheld.timings.took_s[0] >= kernel_s + 30e-6
    held = timer.take(plan, 100)
    assert "hold" in cuda.done
    assert held.timings.took_s.tolist() == pytest.approx([kernel_s] * 100)
    # The host needs one launch per call; the host's time for events does not count.
    assert held.issue_s == pytest.approx(30e-6)
    # The declared busy time includes holds, because the driver counts holds as work.
    assert held.busy_s is not None
    assert held.busy_s >= 100 * kernel_s + sum(cuda.holds_s)
    assert (np.diff(held.timings.at_ns) > 0).all()


def test_slow_host_gets_short_holds() -> None:
    cuda = FakeCuda(launch_s=30e-6)
    timer = cuda.timer()
    plan = TimingPlan(calls=(lambda: cuda.run(10e-6, "call"),))
    timer.take(plan, 5)
    timer.take(plan, 1000)
    assert cuda.done.count("hold") == pytest.approx(1000 * 90e-6 / 0.01, abs=2)


@pytest.mark.parametrize(("call_s", "launch_s", "starved_count"), [(10e-6, 30e-6, 0), (1e-3, 30e-6, 0), (10e-6, 8e-3, 40)])
def test_entries_longer_than_any_hold_are_starved(call_s: float, launch_s: float, starved_count: int) -> None:
    cuda = FakeCuda(launch_s=launch_s)
    timer = cuda.timer()
    plan = TimingPlan(calls=(lambda: cuda.run(call_s, "call"),))
    timer.take(plan, 5)
    assert timer.take(plan, 40).starved_count == starved_count


def test_graph_replays_count_as_starved_entries() -> None:
    cuda = FakeCuda(launch_s=8e-3)
    timer = GraphTimer(cuda.timer(), lambda plan: lambda: cuda.run(10e-6, "replay"))
    plan = TimingPlan(calls=(lambda: None,), calls_count=5)
    timer.take(plan, 5)
    assert timer.take(plan, 10).starved_count == 10


def test_missing_sleep_in_torch_prevents_holds() -> None:
    class Bare(FakeCuda):
        _sleep = None  # type: ignore[assignment]  # torch's private function may go

    cuda = Bare()
    timer = cuda.timer()
    plan = TimingPlan(calls=(lambda: cuda.run(1e-3, "call"),))
    timer.take(plan, 2)
    assert timer.take(plan, 2).timings.took_s.tolist() == pytest.approx([1e-3] * 2, rel=0.01)


def test_graph_is_captured_once_and_replays_are_timed() -> None:
    cuda = FakeCuda()
    captures: list[TimingPlan] = []

    def capture(plan: TimingPlan) -> Call:
        captures.append(plan)
        return lambda: cuda.run(plan.calls_count * 2e-6, "replay")

    timer = GraphTimer(cuda.timer(), capture)
    plan = TimingPlan(calls=(lambda: None,), calls_count=100)
    taken = [timer.take(plan, 5) for _ in range(2)]
    assert captures == [plan]
    assert cuda.done.count("replay") == 10
    assert taken[1].timings.took_s.tolist() == pytest.approx([2e-6] * 5)
    assert taken[1].timings.calls_count == 100


def test_exception_of_an_event_timed_call_propagates() -> None:
    with pytest.raises(ZeroDivisionError):
        FakeCuda().timer().take(TimingPlan(calls=(lambda: 1 / 0,)), 1)


def test_very_slow_host_is_timed_without_hold() -> None:
    cuda = FakeCuda(launch_s=50e-3)
    timer = cuda.timer()
    plan = TimingPlan(calls=(lambda: cuda.run(1e-3, "call"),))
    timer.take(plan, 2)
    assert timer.take(plan, 2).timings.took_s.tolist() == pytest.approx([51e-3 + 49e-3] * 2, rel=0.02)
    assert "hold" not in cuda.done


def host_work(cuda: FakeCuda, seconds: float) -> Callable[[], None]:
    def work() -> None:
        cuda.host_s += seconds

    return work


def test_events_measure_kernels_and_not_host_work() -> None:
    """Work of the host is invisible to events; a kernel of 2 µs or 1 ms is visible."""
    cuda = FakeCuda()
    timer = cuda.timer()
    for seconds in (10e-6, 300e-6, 4e-3):
        assert is_invisible(host_work(cuda, seconds), timer, timer.overhead_s())
    assert not is_invisible(lambda: cuda.run(2e-6, "call"), timer, timer.overhead_s())
    assert not is_invisible(lambda: cuda.run(1e-3, "call"), timer, timer.overhead_s())


@dataclass
class FakeStamps:
    """A constant clock of 1500 MHz, stamped into the same stream."""

    cuda: FakeCuda
    count: int = 8192
    at_s: list[float] = field(default_factory=list)
    closed: bool = False

    def put(self) -> int:
        self.at_s.append(self.cuda.run(3e-6, "stamp"))
        return len(self.at_s) - 1

    def clear(self) -> None:
        self.at_s.clear()

    def fetch(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.tile((np.array(self.at_s) * 1e9).astype(np.int64)[:, np.newaxis] + 1, (1, 132))

    def stamped(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> Stamped:
        return Stamped(rows, (rows * 1.5).astype(np.int64))

    def close(self) -> None:
        self.closed = True


def test_stamps_surround_events_and_give_clock() -> None:
    """Stamps are outside the events of each entry, and give the entry's clock."""
    cuda = FakeCuda()
    stamps = FakeStamps(cuda)
    timer = EventsTimer(cuda, stamps, lambda: round(cuda.host_s * 1e9))  # type: ignore[arg-type]  # a partial mock
    taken = timer.take(TimingPlan(calls=(lambda: cuda.run(1e-3, "call"),), before=flushing(cuda)), 3)
    assert cuda.done == ["event", *["event", "flush", "event", "stamp", "event", "call", "event", "stamp"] * 3]
    assert taken.timings.sm_clock_mhz is not None
    assert taken.timings.sm_clock_mhz.tolist() == pytest.approx([1500.0] * 3, rel=1e-4)
    assert taken.timings.took_s.tolist() == pytest.approx([1e-3] * 3)
    timer.close()
    assert stamps.closed


def test_missing_room_for_stamps_leaves_times_without_clocks() -> None:
    cuda = FakeCuda()
    timer = EventsTimer(cuda, FakeStamps(cuda, count=4))  # type: ignore[arg-type]  # a partial mock
    assert timer.take(TimingPlan(calls=(lambda: cuda.run(1e-3, "call"),)), 3).timings.sm_clock_mhz is None
