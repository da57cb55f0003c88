"""Tests of a source with its own loop: the sampler delivers the readings in order of time, at once if a caller waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from annotate.evidence import Event, Lane, Reading
from gpuwatch import clock
from gpuwatch.clock import MonotonicClock
from gpuwatch.errors import DeviceLostError, SourceError
from gpuwatch.interfaces import Lost, Pass, Sweep
from gpuwatch.sampling.plan import FAST_ACTIVE_NS, FAST_IDLE_NS, unmeasured
from gpuwatch.sampling.sampler import Sampler, SamplerTiming
from tests.gpuwatch.scripted import DEVICE, UUID, Kept, Scripted
from tests.waiting import PATIENCE_S, wait_until

MS = 1_000_000


@dataclass
class Looping(Scripted):
    """A scripted source with its own loop in Python, which waits for deadlines or an interrupt."""

    hangs: threading.Event = field(default_factory=threading.Event)
    hung_for: threading.Event = field(default_factory=threading.Event)  # a hanging call returns when this is set
    read_ns: list[int] = field(default_factory=list)  # time of each pass
    runs: list[int] = field(default_factory=list)  # passes of each run
    has_loop: bool = True
    _interrupted: threading.Event = field(default_factory=threading.Event)
    asking_since_ns: int | None = None
    is_hung: bool = False

    def series(self, uuid: str, row: Sequence[str], pulse: Sequence[str]) -> Looping | None:
        self._names = {Lane.FAST: row, Lane.PULSE: pulse}
        return self if self.has_loop else None

    def interrupt(self) -> None:
        self._interrupted.set()

    def run(
        self, due_ns: int, until_ns: int, period_ns: int, *, row_at_ns: int, row_after_ns: int, is_resting: bool = False
    ) -> tuple[Sequence[Pass], SourceError | None]:
        passes: list[Pass] = []
        while not passes or due_ns <= until_ns:
            if self._interrupted.wait(max(0, due_ns - clock.now_ns()) / 1e9):
                self._interrupted.clear()
                break
            now_ns = clock.now_ns()
            missed_count = (now_ns - due_ns) // period_ns
            due_ns += missed_count * period_ns
            lane = Lane.PULSE if now_ns - row_at_ns < row_after_ns else Lane.FAST
            row_at_ns = now_ns if lane is Lane.FAST else row_at_ns
            self.asking_since_ns = now_ns
            if self.hangs.is_set():
                self.is_hung = True
                self.hung_for.wait(PATIENCE_S)
            try:
                reading = self.read(UUID, lane, self._names[lane])
            except SourceError as error:
                self.runs.append(len(passes))
                return passes, error
            finally:
                self.asking_since_ns = None
            self.read_ns.append(reading.at_ns)
            passes.append(Pass(due_ns, now_ns - due_ns, missed_count, reading))
            due_ns += period_ns
        self.runs.append(len(passes))
        return passes, None


@contextmanager
def watched(
    source: Looping, *, hang_ns: int = 60_000_000_000, idle_period_ns: int = FAST_IDLE_NS
) -> Iterator[tuple[Sampler, Kept]]:
    kept = Kept()
    plan = unmeasured(DEVICE, idle_period_ns)
    sampler = Sampler(source, plan, (kept,), MonotonicClock(), threading.Event(), timing=SamplerTiming(hang_ns=hang_ns))
    sampler.start()
    try:
        yield sampler, kept
    finally:
        sampler.stop()


def handed(sampler: Sampler, seconds: float = PATIENCE_S) -> bool:
    given = threading.Event()
    sampler.hand_over(given.set)
    return given.wait(seconds)


def times(kept: Kept, *lanes: Lane) -> list[int]:
    return [sweep.observed.at_ns for sweep in kept.sweeps if sweep.lane in lanes]


def until(kept: Kept, lane: Lane, count: int) -> list[Sweep]:
    wait_until(lambda: len(kept.of(lane)) >= count, what=f"{count} sweeps of the lane {lane}")
    return kept.of(lane)


def test_loop_delivers_its_first_reading_at_once() -> None:
    """The loop delivers its first reading at once, and later ones in batches."""
    source = Looping(MonotonicClock())
    with watched(source) as (sampler, kept):
        assert until(kept, Lane.FAST, 1)
        until(kept, Lane.FAST, 12)
        assert source.runs[0] == 1
        assert max(source.runs) >= 4
        assert [b > a for a, b in pairwise(times(kept, Lane.FAST))] == [True] * (len(times(kept, Lane.FAST)) - 1)
        assert sampler.status()["questions"]["fast"]["asked_count"] >= 12


def test_loop_delivers_an_edge_in_order() -> None:
    """An edge is delivered in order, and a hand-over delivers all earlier readings."""
    source = Looping(MonotonicClock())
    with watched(source) as (sampler, kept):
        until(kept, Lane.FAST, 3)
        for _ in range(20):
            sampler.edge()
            edge_ns, read_ns = clock.now_ns(), list(source.read_ns)
            assert handed(sampler)
            rows = times(kept, Lane.FAST, Lane.PULSE)
            assert rows == sorted(rows)
            assert [at_ns for at_ns in times(kept, Lane.EDGE) if at_ns <= edge_ns]
            assert set(read_ns) <= set(rows), "all earlier readings are delivered"
        assert len(kept.of(Lane.EDGE)) == 20
        assert len(kept.of(Lane.PROCESSES)) >= 20


def test_hand_over_does_not_wait_for_a_far_deadline() -> None:
    """A lane with minutes between readings, as under a small budget, does not delay a hand-over."""
    with watched(Looping(MonotonicClock()), idle_period_ns=10 * round(PATIENCE_S * 1e9)) as (sampler, kept):
        until(kept, Lane.PROCESSES, 2)
        assert len(kept.of(Lane.FAST)) == 1
        sampler.edge()
        assert handed(sampler)
        assert len(kept.of(Lane.EDGE)) == 1
        assert len(kept.of(Lane.FAST)) == 2, "only the edge added a row"


def test_loop_reads_a_whole_row_for_a_new_window() -> None:
    """A new window gets a whole row at once, and then pulses."""
    source = Looping(MonotonicClock())
    with watched(source, idle_period_ns=round(10 * PATIENCE_S * 1e9)) as (
        sampler,
        kept,
    ):  # no idle deadline comes during the test
        until(kept, Lane.FAST, 1)
        opened_ns = clock.now_ns()
        sampler.set_active(True)
        assert until(kept, Lane.PULSE, 30)
        assert handed(sampler)
        after = [sweep for sweep in kept.sweeps if sweep.lane in (Lane.FAST, Lane.PULSE) and sweep.observed.at_ns > opened_ns]
        assert after[0].lane is Lane.FAST
        lanes = [sweep.lane for sweep in after]
        assert lanes.count(Lane.PULSE) > lanes.count(Lane.FAST)
        sampler.set_periods(FAST_IDLE_NS, FAST_ACTIVE_NS)
        sampler.set_active(False)
        until(kept, Lane.FAST, len(kept.of(Lane.FAST)) + 8)
        assert kept.sweeps[-1].lane is not Lane.PULSE


def test_loop_reports_a_lost_gpu_once() -> None:
    """A GPU lost in the loop is reported once, and is sampled again on return."""
    lost = threading.Event()

    def fails(lane: Lane) -> None:
        if lost.is_set() and lane in (Lane.FAST, Lane.PULSE):
            raise DeviceLostError(UUID, "gone")

    source = Looping(MonotonicClock(), fails=fails)
    with watched(source) as (sampler, kept):
        until(kept, Lane.FAST, 3)
        lost.set()
        wait_until(lambda: sampler.lost, what="the loss is reported")
        assert sampler.lost == "gone"
        sampler.edge()  # an edge does not wait for a lost GPU
        assert handed(sampler, 0.0)
        lost.clear()
        seen = len(kept.of(Lane.FAST))
        until(kept, Lane.FAST, seen + 8)
        reported = [sweep.observed for sweep in kept.of(Lane.FAST) if isinstance(sweep.observed, Lost | Event)]
        assert [type(each) for each in reported] == [Lost, Event]
        assert sampler.lost is None
        assert source.runs[-1] > 1
        read = [sweep.observed.at_ns for sweep in kept.of(Lane.FAST) if isinstance(sweep.observed, Reading)]
        assert read == sorted(read)


def test_loop_reports_a_hung_driver() -> None:
    """A driver call that hangs in the loop is reported as a loss, and the call's return ends the loss."""
    source = Looping(MonotonicClock())
    with watched(source, hang_ns=150 * MS) as (sampler, kept):
        until(kept, Lane.FAST, 3)
        source.hangs.set()
        wait_until(lambda: source.is_hung, what="a call hangs")
        assert not handed(sampler, 0.02)  # earlier readings are not delivered yet
        assert "no answer" in (wait_until(lambda: sampler.lost, what="the loss is reported") or "")
        source.hangs.clear()
        source.hung_for.set()
        wait_until(lambda: sampler.lost is None, what="the GPU is back")
        assert handed(sampler)
        lost, back = [sweep.observed for sweep in kept.of(Lane.FAST) if not isinstance(sweep.observed, Reading)]
        assert isinstance(lost, Lost)
        assert isinstance(back, Event)
        assert back.at_ns > lost.at_ns


def test_source_without_a_loop_is_read_pass_by_pass() -> None:
    source = Looping(MonotonicClock(), has_loop=False)
    with watched(source) as (sampler, kept):
        assert len(until(kept, Lane.FAST, 5)) >= 5
        sampler.edge()
        assert kept.of(Lane.EDGE)  # delivered before ``edge`` returned
        assert handed(sampler, 0.0)
        assert source.runs == []
