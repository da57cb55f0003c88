"""Tests of a sampler on a virtual clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from annotate.evidence import Event, Lane, Reading
from gpuwatch.clock import VirtualClock
from gpuwatch.errors import DeviceLostError
from gpuwatch.interfaces import Lost, Sweep
from gpuwatch.sampling.measure import measure
from gpuwatch.sampling.plan import unmeasured
from gpuwatch.sampling.refresh import Refresh
from gpuwatch.sampling.sampler import Sampler
from gpuwatch.sources.simulated import Simulated
from tests.gpuwatch.scripted import DEVICE, UUID, Scripted

MS = 1_000_000
S = 1_000_000_000


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
    """In a window, process lists are read once a second with utilisation, and five times a second without."""
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
    """In a window, pulses read clock and reasons between whole rows; without a window there are no pulses."""
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
    """A GPU lost in a pulse is reported once, and the first reading afterwards is a whole row."""
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
    sampler.set_periods(S, 10 * MS)
    assert sampler.period_ns == {Lane.FAST: 50 * MS, Lane.PULSE: 10 * MS, Lane.SLOW: S}
    sampler.set_periods(S, 200 * MS)
    assert sampler.period_ns == {Lane.FAST: 200 * MS, Lane.SLOW: S}


def test_configured_periods_stay_within_the_budget() -> None:
    """Configured periods apply, unless the budget needs longer ones."""
    clock = VirtualClock()
    source = Scripted(clock, usual_cost_ns=50_000)
    sampler = Sampler(source, measure(source, DEVICE, clock), (), clock, threading.Event())
    sampler.set_periods(500 * MS, 1 * MS)
    assert sum(s.lane == Lane.FAST for s in taken(sampler, clock, 5.0)) == pytest.approx(11, abs=1)
    sampler.set_active(True)
    assert sum(s.lane == Lane.FAST for s in taken(sampler, clock, 6.0)) == pytest.approx(100, abs=3)  # 60 ms, not 1


def test_simulated_gpu_runs_faster_than_real_time() -> None:
    """In 20 virtual seconds a simulated GPU gives four lanes, and power with a refresh period of about 100 ms."""
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
