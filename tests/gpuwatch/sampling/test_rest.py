"""Tests of an idle GPU, which is read rarely until work or a window begins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from annotate.evidence import HEARTBEAT_NS, Lane, Reading, Reason
from gpuwatch.clock import VirtualClock
from gpuwatch.interfaces import Sweep
from gpuwatch.sampling.plan import unmeasured
from gpuwatch.sampling.sampler import Sampler
from gpuwatch.store.compaction import Compactor
from tests.gpuwatch.scripted import DEVICE, Scripted

S = 1_000_000_000
NOTICED_NS = S // 2
FAST = (Lane.FAST, Lane.PULSE)


@dataclass
class Gpu:
    """A GPU on a virtual clock, idle until ``works`` is set."""

    works: bool = False
    clock: VirtualClock = field(default_factory=VirtualClock)
    changes: int = 0

    def __post_init__(self) -> None:
        mask = {"event_reasons_mask": lambda _: int(Reason.SW_POWER_CAP if self.works else Reason.GPU_IDLE)}
        self.source = Scripted(self.clock, values=mask)
        self.sampler = Sampler(self.source, unmeasured(DEVICE), (), self.clock, threading.Event())
        self.sampler.rest.on_change = self._count
        self._sweeps = self.sampler.sweeps()

    def _count(self) -> None:
        self.changes += 1

    def watched(self, seconds: float, *lanes: Lane) -> list[Sweep]:
        return [sweep for sweep in self._watch(seconds) if not lanes or sweep.lane in lanes]

    def _watch(self, seconds: float) -> Iterator[Sweep]:
        until_ns = self.clock.now_ns() + round(seconds * S)
        while self.clock.now_ns() < until_ns:
            yield next(self._sweeps)

    def resting(self, *, attended: bool = True) -> Gpu:
        self.sampler.rest.set_attended(attended)
        self.watched(12.0)
        assert self.sampler.rest.is_resting
        return self


def apart_ns(found: list[Sweep]) -> list[int]:
    return [b.observed.at_ns - a.observed.at_ns for a, b in pairwise(found)]


def test_idle_gpu_is_read_rarely_after_a_while() -> None:
    """An idle GPU is read at 20 Hz for at least 9 s.  A resting GPU gives no repeated pulse and no stale row."""
    gpu = Gpu()
    assert len(gpu.watched(9.0, Lane.FAST)) == pytest.approx(180, abs=2)
    gpu.resting()
    found = gpu.watched(60.0, *FAST)
    assert {sweep.lane for sweep in found} == {Lane.FAST}
    assert len(found) == pytest.approx(67, abs=1)
    assert max(apart_ns(found)) < HEARTBEAT_NS
    assert all(not sweep.missed_count for sweep in found)
    assert gpu.changes == 1


def test_busy_gpu_never_rests() -> None:
    gpu = Gpu(works=True)
    assert len(gpu.watched(60.0, Lane.FAST)) == pytest.approx(1200, abs=5)


def test_work_ends_a_rest_within_half_a_second() -> None:
    gpu = Gpu().resting()
    began_ns = gpu.clock.now_ns()
    gpu.works = True
    found = gpu.watched(2.0)
    noticed = next(each for each in found if isinstance(each.observed, Reading) and each.observed.event_reasons_mask == 4)
    assert noticed.observed.at_ns - began_ns <= NOTICED_NS
    rows = [each for each in found if each.lane is Lane.FAST and each.observed.at_ns > noticed.observed.at_ns]
    assert max(apart_ns(rows)) <= S // 20
    # The driver's record covers 2.4 s, including the start of the work (docs/decisions/0069).
    for lane in (Lane.POWER, Lane.PROCESSES, Lane.SLOW):
        first = next(each for each in found if each.lane is lane and each.observed.at_ns >= noticed.observed.at_ns)
        assert first.observed.at_ns - noticed.observed.at_ns <= S // 50
    assert gpu.changes == 2


def test_window_ends_a_rest_at_once() -> None:
    gpu = Gpu().resting()
    opened_ns = gpu.clock.now_ns()
    gpu.sampler.set_active(True)
    found = [each for each in gpu.watched(1.0, *FAST) if each.observed.at_ns >= opened_ns]
    assert found[0].lane is Lane.FAST
    assert found[0].observed.at_ns - opened_ns <= S // 100
    assert len(found) == pytest.approx(100, abs=2)
    assert not any(each.missed_count for each in found)
    gpu.sampler.set_active(False)
    assert len(gpu.watched(9.0, Lane.FAST)) == pytest.approx(180, abs=4), (
        "a pause between two windows is read at the usual rate"
    )


@pytest.mark.parametrize("attended", [True, False])
def test_expensive_calls_are_rare_without_clients(attended: bool) -> None:
    gpu = Gpu().resting(attended=attended)
    found = gpu.watched(60.0, Lane.SLOW, Lane.PROCESSES, Lane.POWER)
    assert len(found) == pytest.approx(132 if attended else 4, abs=3 if attended else 1)
    gpu.sampler.rest.set_attended(True)
    begun_ns = gpu.clock.now_ns()
    first = {each.lane: each.observed.at_ns for each in reversed(gpu.watched(2.0)) if each.observed.at_ns >= begun_ns}
    assert all(first[lane] - begun_ns <= S for lane in (Lane.PROCESSES, Lane.POWER))
    if not attended:
        assert first[Lane.SLOW] - begun_ns <= S


def test_rest_makes_no_gap_and_extends_no_rows() -> None:
    """No stored row outlasts the last reading, and the slower rate is not a gap in the lane."""
    gpu, compactor = Gpu(), Compactor()
    read: list[int] = []
    for sweep in gpu.watched(30.0):
        compactor.take(sweep)
        read += [sweep.observed.at_ns] if sweep.lane is Lane.FAST else []
    rows: Any = compactor.rows()
    assert rows.gaps == []
    stored = [(at_ns, at_ns + stood_ms * 1_000_000) for lane, at_ns, _, stood_ms, _ in rows.readings if lane is Lane.FAST]
    assert max(end_ns for _, end_ns in stored) <= read[-1]
    assert max(b - a for a, b in pairwise(read)) < HEARTBEAT_NS


def test_gpu_without_reasons_rests_by_its_utilisation() -> None:
    gpu = Gpu()
    gpu.source.values = {"event_reasons_mask": lambda _: None, "utilization_ratio": lambda _: 1.0 if gpu.works else 0.0}
    gpu.resting()
    gpu.works = True
    gpu.watched(2.0)
    assert not gpu.sampler.rest.is_resting
