from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from annotate.evidence import Event, Lane, Reading
from gpuwatch.clock import MonotonicClock, VirtualClock
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.interfaces import Lost, Sweep
from gpuwatch.sampling.loop import LaneTurn, sweeps
from gpuwatch.sampling.measure import measure
from gpuwatch.sampling.pace import Pace, ThreadCost
from gpuwatch.sampling.plan import unmeasured
from gpuwatch.sampling.refresh import Refresh
from gpuwatch.sampling.sampler import Sampler, SamplerTiming
from gpuwatch.sampling.sampler_thread import EventWatch
from gpuwatch.sampling.wakeup import Wakeup
from gpuwatch.sources.simulated import Simulated
from tests.gpuwatch.scripted import DEVICE, UUID, Kept, Scripted
from tests.waiting import PATIENCE_S, wait_until

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
    """A pass that overruns delays the next one, and the delay is recorded."""
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
    """A lost GPU is reported once, retried at growing intervals, and reported again when it is back."""
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


def virtual(active: bool = False, **settings: Any) -> tuple[Sampler, Scripted, VirtualClock]:
    clock = VirtualClock()
    source = Scripted(clock, **settings)
    sampler = Sampler(source, unmeasured(DEVICE), (), clock, threading.Event())
    sampler.set_active(active)
    return sampler, source, clock


def taken(sampler: Sampler, clock: VirtualClock, seconds: float) -> Iterator[Sweep]:
    until_ns = clock.now_ns() + round(seconds * S)
    for sweep in sampler.sweeps():
        if clock.now_ns() > until_ns:
            return
        yield sweep


@pytest.mark.parametrize(
    ("active", "expected"),
    [
        (False, {"fast": 201, "slow": 2, "power": 11, "processes": 13}),
        (True, {"fast": 201, "pulse": 800, "slow": 11, "power": 11, "processes": 62}),
    ],
)
def test_each_lane_has_its_rate_idle_and_active(active: bool, expected: dict[str, int]) -> None:
    sampler, _, clock = virtual(active)
    found: dict[str, int] = {}
    for sweep in taken(sampler, clock, 10.0):
        found[sweep.lane] = found.get(sweep.lane, 0) + 1
        assert sweep.late_ns == sweep.missed_count == 0
    assert found == pytest.approx(expected, abs=1)


def test_process_utilisation_is_read_once_a_second() -> None:
    """In a window, process utilisation is read once a second, and process lists five times a second."""
    sampler, source, clock = virtual(active=True)
    list(taken(sampler, clock, 5.0))
    assert source.process_lists.count(True) == pytest.approx(6, abs=1)
    assert source.process_lists.count(False) == pytest.approx(26, abs=1)


def test_activation_switches_the_lanes_at_once() -> None:
    """Activation switches the lanes at once and reads the slow lane soon."""
    sampler, _, clock = virtual()
    list(taken(sampler, clock, 3.02))
    sampler.set_active(True)
    begin_ns = clock.now_ns()
    found = list(taken(sampler, clock, 0.1))
    fast = [sweep for sweep in found if sweep.lane in (Lane.FAST, Lane.PULSE)]
    slow = [sweep for sweep in found if sweep.lane == Lane.SLOW]
    assert fast[0].due_ns - begin_ns <= MS
    assert [sweep.lane for sweep in fast[:7]] == [Lane.FAST, *[Lane.PULSE] * 4, Lane.FAST, Lane.PULSE]
    assert len(fast) >= 10
    assert 0 <= slow[0].due_ns - begin_ns <= 10 * MS
    list(taken(sampler, clock, 0.5))
    sampler.set_active(False)
    begin_ns = clock.now_ns()
    assert any(sweep.lane == Lane.SLOW and sweep.due_ns - begin_ns <= 10 * MS for sweep in taken(sampler, clock, 0.1))
    assert sum(sweep.lane == Lane.FAST for sweep in taken(sampler, clock, 1.0)) == pytest.approx(20, abs=2)


def test_pulse_reads_clock_and_reasons_in_a_window() -> None:
    """In a window, a pulse reads clock and reasons between two whole rows; without a window there are no pulses."""
    sampler, source, clock = virtual(active=True)
    readings = [sweep.observed for sweep in taken(sampler, clock, 1.0) if isinstance(sweep.observed, Reading)]
    fast = [reading.at_ns for reading in readings if reading.lane is Lane.FAST]
    assert set(np.diff(fast)) == {50 * MS}
    both = [reading.at_ns for reading in readings if reading.lane in (Lane.FAST, Lane.PULSE)]
    assert set(np.diff(both)) == {10 * MS}
    pulse = next(reading for reading in readings if reading.lane is Lane.PULSE)
    assert (pulse.sm_clock_mhz, pulse.event_reasons_mask) == (1, 1)
    assert pulse.power_w is pulse.power_cap_ns is None
    assert sampler.period_ns == {Lane.FAST: 50 * MS, Lane.PULSE: 10 * MS, Lane.SLOW: S}
    sampler.set_active(False)
    source.reads.clear()
    list(taken(sampler, clock, 1.0))
    assert {lane for lane, _ in source.reads} <= {Lane.FAST, Lane.SLOW}
    assert Lane.PULSE not in sampler.period_ns


def test_late_passes_do_not_shift_rows() -> None:
    """Late passes do not shift the deadlines of rows, and each missed pass counts once."""
    clock = VirtualClock()
    source = Scripted(clock, takes_time=True, usual_cost_ns=300_000)  # a row takes 3.6 ms
    sampler = Sampler(source, unmeasured(DEVICE), (), clock, threading.Event())
    sampler.set_active(True)
    found = list(taken(sampler, clock, 3.0))
    due = [sweep.due_ns for sweep in found if sweep.lane is Lane.FAST]
    assert np.median(np.diff(due)) == 50 * MS
    pulses = sum(sweep.lane is Lane.PULSE for sweep in found)
    missed = sum(sweep.missed_count for sweep in found if sweep.lane in (Lane.FAST, Lane.PULSE))
    assert len(due) + pulses + missed == pytest.approx(300, abs=2)


def test_gpu_lost_in_a_pulse_returns_with_a_whole_row() -> None:
    """A GPU lost in a pulse is reported once, and its first reading afterwards is a whole row."""
    clock, lost = VirtualClock(), threading.Event()

    def fails(lane: Lane) -> None:
        if lost.is_set() and lane in (Lane.FAST, Lane.PULSE):
            raise DeviceLostError(UUID, "gone")

    sampler = Sampler(Scripted(clock, fails=fails), unmeasured(DEVICE), (), clock, threading.Event())
    sampler.set_active(True)
    list(taken(sampler, clock, 0.02))
    lost.set()
    reported = [sweep for sweep in taken(sampler, clock, 2.5) if sweep.lane in (Lane.FAST, Lane.PULSE)]
    assert [(sweep.lane, type(sweep.observed)) for sweep in reported] == [(Lane.FAST, Lost)]
    sampler.set_active(False)  # the window has ended: nothing waits for a pulse
    lost.clear()
    back = [sweep for sweep in taken(sampler, clock, 5.0) if sweep.lane in (Lane.FAST, Lane.PULSE)]
    assert isinstance(back[0].observed, Event)
    assert back[1].lane is Lane.FAST
    assert sampler.lost is None


def test_configured_periods_decide_on_rows_and_pulses() -> None:
    """Short idle periods give whole rows without pulses; long idle periods do not apply to rows in a window."""
    sampler, _, clock = virtual(active=True)
    sampler.set_periods(10 * MS, 10 * MS)
    assert {sweep.lane for sweep in taken(sampler, clock, 1.0)} & {Lane.FAST, Lane.PULSE} == {Lane.FAST}
    assert sampler.rate_hz == pytest.approx(100, abs=2)
    sampler.set_periods(S, 10 * MS)  # rare while idle is not rare in a window
    assert sampler.period_ns == {Lane.FAST: 50 * MS, Lane.PULSE: 10 * MS, Lane.SLOW: S}
    sampler.set_periods(S, 200 * MS)
    assert sampler.period_ns == {Lane.FAST: 200 * MS, Lane.SLOW: S}


def test_configured_periods_stay_within_the_budget() -> None:
    """Configured periods apply, but are never shorter than the budget allows."""
    clock = VirtualClock()
    source = Scripted(clock, usual_cost_ns=50_000)
    sampler = Sampler(source, measure(source, DEVICE, clock), (), clock, threading.Event())
    sampler.set_periods(500 * MS, 1 * MS)
    assert sum(s.lane == Lane.FAST for s in taken(sampler, clock, 5.0)) == pytest.approx(11, abs=1)
    sampler.set_active(True)
    assert sum(s.lane == Lane.FAST for s in taken(sampler, clock, 6.0)) == pytest.approx(100, abs=3)  # 60 ms, not 1


def test_simulated_gpu_runs_faster_than_real_time() -> None:
    clock = VirtualClock()
    source = Simulated(None, clock)
    device = source.devices()[0]
    sampler = Sampler(source, measure(source, device, clock), (), clock, threading.Event())
    sampler.set_active(True)
    refresh = Refresh(device.uuid)
    lanes = set()
    for sweep in taken(sampler, clock, 20.0):
        refresh.take(sweep)
        lanes.add(sweep.lane)
    assert {Lane.FAST, Lane.SLOW, Lane.PROCESSES, Lane.POWER} <= lanes
    assert refresh.refresh_ns()["power_w"] == pytest.approx(100 * MS, rel=0.2)


def test_statistics_hold_lateness_losses_and_rate() -> None:
    pace = Pace()
    for second in range(100):
        pace.note(second * S, second * 1000, 1 * MS, 1 if second == 70 else 0)
    found = pace.statistics("fast", 100 * S, None)
    assert found.asked_count == 60  # of the last minute only
    assert found.missed_count == 1
    assert found.rate_hz == pytest.approx(1.0)
    assert found.late_p50_ns == 70_000
    assert (found.late_p99_ns, found.late_max_ns) == (99_000, 99_000)
    assert found.cost_ratio == pytest.approx(0.001)


def test_statistics_without_passes_are_zero() -> None:
    found = Pace().statistics("slow", S, "lost")
    assert (found.asked_count, found.rate_hz, found.late_max_ns, found.lost) == (0, 0.0, 0, "lost")
    assert ThreadCost().ratio() is None


def test_thread_cost_is_its_share_of_a_core() -> None:
    spent = iter([0, 5 * MS, 20 * MS])
    cost = ThreadCost(lambda: next(spent))
    for now_ns in (0, S // 2, S, 2 * S):
        cost.note(now_ns)
    assert cost.ratio() == pytest.approx(0.01)


@pytest.fixture(name="threads")
def _threads() -> Iterator[Callable[..., tuple[Sampler, Scripted, Kept]]]:
    """Yield samplers with real threads on the real clock; release and stop them at the end."""
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
    """A hung call is reported once, stops only its own thread, and is reported as back when it returns."""
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
    """Both threads reopen a lost source only once."""
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


@pytest.mark.gpu
def test_gpu_is_watched_at_both_rates_within_its_budget() -> None:
    """A real GPU is sampled at both rates within its budget."""
    from gpuwatch.sources.nvml import Nvml

    clock, kept, stop, pause = MonotonicClock(), Kept(), threading.Event(), threading.Event()
    source = Nvml()
    device = source.devices()[0]
    begin_ns = clock.now_ns()
    plan = measure(source, device, clock)
    print(f"\nmeasured in {(clock.now_ns() - begin_ns) / S:.2f} s")
    for lane, names in plan.names.items():
        row_us = plan.row_cost_ns[lane] / 1000
        print(f"{lane}: {len(names)} signals, row {row_us:.1f} us, {plan.least_period_ns.get(lane, 0) / MS:.1f} ms at least")
    for name, cost_ns in sorted(plan.cost_ns.items(), key=lambda item: -item[1]):
        print(f"  {name:24} {cost_ns / 1000:9.1f} us  {plan.reasons.get(name, '')}")
    print("refresh:", {name: f"{period / MS:.0f} ms" for name, period in plan.refresh_ns.items()}, "reasons:", plan.reasons)
    EventWatch(source, (kept,), clock, stop).start()
    for active in (False, True):
        sampler = Sampler(source, plan, (kept,), clock, stop if active else threading.Event())
        sampler.set_active(active)
        sampler.start()
        pause.wait(6.0)
        status = sampler.status()
        print("active" if active else "idle", f"cpu {(status['cpu_ratio'] or 0) * 100:.2f} % of a core")
        for what, question in status["questions"].items():
            print(
                f"  {what:12} {question['rate_hz']:6.1f} Hz, missed {question['missed_count']}, calls"
                f" {question['cost_ratio'] * 100:.3f} %, late p50 {question['late_p50_ns'] / 1000:.0f}"
                f" p99 {question['late_p99_ns'] / 1000:.0f} max {question['late_max_ns'] / 1000:.0f} us"
            )
        if not active:
            assert sampler.stop(3.0)
    took_ms = []
    for _ in range(20):
        begin_ns = clock.now_ns()
        sampler.edge()
        took_ms.append((clock.now_ns() - begin_ns) / MS)
        pause.wait(0.15)
    print(f"edges: {sorted(took_ms)[10]:.2f} ms median, {max(took_ms):.2f} ms at most")
    fast = sampler.status()["questions"]["fast"]
    stopped = sampler.stop(3.0)
    source.close()
    lost = [sweep for sweep in kept.sweeps if isinstance(sweep.observed, Lost)]
    print({lane: len(kept.of(lane)) for lane in Lane}, "lost:", lost)
    assert stopped
    assert lost == []
    assert fast["rate_hz"] > 50
    assert {Lane.FAST, Lane.SLOW, Lane.EDGE, Lane.PROCESSES, Lane.POWER} <= {sweep.lane for sweep in kept.sweeps}
