"""Tests of a sampler with its threads on the real clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from annotate.evidence import Event, Lane, Reading
from gpuwatch.clock import MonotonicClock
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.interfaces import Lost, Sweep
from gpuwatch.sampling.plan import unmeasured
from gpuwatch.sampling.sampler import Sampler, SamplerTiming
from gpuwatch.sampling.sampler_thread import EventWatch
from tests.gpuwatch.scripted import DEVICE, UUID, Kept, Scripted
from tests.waiting import PATIENCE_S, wait_until

MS = 1_000_000


@pytest.fixture(name="threads")
def _threads() -> Iterator[Callable[..., tuple[Sampler, Scripted, Kept]]]:
    """Yield a function that starts samplers with real threads on the real clock; stop the samplers at the end."""
    started: list[Sampler] = []

    def start(**settings: Any) -> tuple[Sampler, Scripted, Kept]:
        clock, kept = MonotonicClock(), Kept()
        timing = SamplerTiming(hang_ns=settings.pop("hang_ns", SamplerTiming().hang_ns))
        reopen = settings.pop("reopen", None)
        source = Scripted(clock, **settings)
        sampler = Sampler(source, unmeasured(DEVICE), (kept,), clock, threading.Event(), reopen=reopen, timing=timing)
        started.append(sampler)
        sampler.start()
        return sampler, source, kept

    yield start
    for sampler in started:
        sampler.stop()


def readings(lane: Lane, more_than: int) -> Callable[[Any], bool]:
    return lambda found: sum(isinstance(s.observed, Reading) and s.lane == lane for s in found) > more_than


def test_both_threads_give_every_lane_to_the_sinks(threads: Any) -> None:
    sampler, _, kept = threads()
    assert kept.wait_for(lambda found: {Lane.FAST, Lane.SLOW, Lane.POWER, Lane.PROCESSES} <= {s.lane for s in found})
    sampler.set_active(True)
    assert kept.wait_for(readings(Lane.PULSE, 100))
    assert sampler.lost is None
    fast = sampler.status()["questions"]["fast"]
    assert fast["asked_count"] > 50
    assert fast["rate_hz"] > 0
    assert sampler.stop()


def test_pulses_reach_the_sinks_in_order(threads: Any) -> None:
    """Pulses reach the sinks in order, and no later than the next whole row."""
    sampler, _, kept = threads()
    assert kept.wait_for(readings(Lane.FAST, 0))
    sampler.set_active(True)
    assert kept.wait_for(readings(Lane.PULSE, 40))
    both = [sweep.observed.at_ns for sweep in list(kept.sweeps) if sweep.lane in (Lane.FAST, Lane.PULSE)]
    assert both == sorted(both)
    sampler.set_active(False)
    assert kept.wait_for(readings(Lane.FAST, len(kept.of(Lane.FAST)) + 1))
    assert kept.sweeps[-1].lane is not Lane.PULSE


def test_edge_is_read_in_the_callers_thread(threads: Any) -> None:
    """An edge is read in the caller's thread, and the slow lane is read soon afterwards."""
    sampler, _, kept = threads()
    assert kept.wait_for(readings(Lane.SLOW, 0))
    kept.sweeps.clear()
    sampler.edge()
    edge = kept.of(Lane.EDGE)
    assert isinstance(edge[0].observed, Reading)
    assert edge[0].observed.power_violation_ns == 1
    assert kept.of(Lane.FAST)
    assert kept.of(Lane.PROCESSES)
    assert kept.wait_for(readings(Lane.SLOW, 0), 2.0)


def test_lost_gpu_is_not_read_at_an_edge(threads: Any) -> None:
    lost = threading.Event()

    def fails(lane: Lane) -> None:
        if lost.is_set():
            raise DeviceLostError(UUID, "gone for good")

    sampler, _, kept = threads(fails=fails)
    assert kept.wait_for(readings(Lane.FAST, 0))
    lost.set()
    assert kept.wait_for(lambda found: any(s.lane == Lane.FAST and isinstance(s.observed, Lost) for s in found))
    assert sampler.lost == "gone for good"
    sampler.edge()
    assert kept.of(Lane.EDGE) == []


def test_hung_call_stops_only_its_own_thread(threads: Any) -> None:
    """A hung call is reported once and stops only its own thread; the call's return is reported too."""
    hang, release = threading.Event(), threading.Event()

    def fails(lane: Lane) -> None:
        if lane == Lane.FAST and hang.is_set():
            release.wait(PATIENCE_S)

    sampler, _, kept = threads(fails=fails, hang_ns=200 * MS)
    assert kept.wait_for(readings(Lane.FAST, 2))
    hang.set()
    try:
        assert kept.wait_for(lambda found: any(s.lane == Lane.FAST and isinstance(s.observed, Lost) for s in found))
        assert sampler.lost == "no answer for 0.2 s"
        before = len(kept.of(Lane.POWER))
        assert kept.wait_for(lambda found: sum(s.lane == Lane.POWER for s in found) > before)
        losses_count = sum(isinstance(sweep.observed, Lost) for sweep in kept.of(Lane.FAST))
        assert losses_count == 1
    finally:
        hang.clear()
        release.set()
    assert kept.wait_for(lambda found: any(isinstance(s.observed, Event) and s.observed.kind == "back" for s in found))
    assert sampler.lost is None


def test_gone_source_is_reopened_once_for_both_threads(threads: Any) -> None:
    gone = threading.Event()
    opened: list[Scripted] = []

    def fails(lane: Lane) -> None:
        if gone.is_set():
            raise SourceGoneError("the driver is not loaded")

    def reopen(failed: object) -> Scripted:
        opened.append(Scripted(MonotonicClock()))
        return opened[-1]

    sampler, _, kept = threads(fails=fails, reopen=reopen)
    assert kept.wait_for(readings(Lane.FAST, 0))
    gone.set()
    assert kept.wait_for(lambda found: any(s.lane == Lane.FAST and isinstance(s.observed, Lost) for s in found))
    back = {Lane.FAST, Lane.POWER, Lane.PROCESSES}
    assert kept.wait_for(lambda found: back <= {s.lane for s in found if isinstance(s.observed, Event)})
    assert len(opened) == 1
    wait_until(lambda: sampler.lost is None)


def test_driver_events_reach_the_sinks() -> None:
    clock, kept, stop = MonotonicClock(), Kept(), threading.Event()
    event = Event(uuid=UUID, at_ns=5, kind="xid", value=79)
    watch = EventWatch(Scripted(clock, pending=[event]), (kept,), clock, stop, timeout_s=0.05)
    watch.start()
    assert kept.wait_for(lambda found: len(found) == 1)
    stop.set()
    assert kept.sweeps == [Sweep(UUID, Lane.EVENTS, 5, 0, 0, event)]
