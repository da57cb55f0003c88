"""One attempt: warm up until steady, then measure inside a window until it is enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np

from annotate.evidence import Timings
from annotate.stats.intervals import Interval
from annotate.verdict import Verdict
from gpuwatch.measuring.progress import Progress
from gpuwatch.measuring.steady import CAPPED, QUICK, is_steady, power_limited
from gpuwatch.measuring.stopping import Stopped, Stopping
from gpuwatch.timers import Timer, TimingPlan, joined
from gpuwatch.wire.messages import FactValue

# One chunk of entries: asked for without waiting, then read.  Between two the GPU idles for some milliseconds.
CHUNK_S = 0.2
_ENTRIES_MOST_COUNT = 2000


class MeasuredWindow(Protocol):
    """What a benchmark needs of a window."""

    run_id: str | None

    def tell(self, **facts: FactValue) -> None: ...

    def record(self, times: Timings) -> None: ...

    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is the same in every attempt."""

    timer: Timer
    plan: TimingPlan
    entry_s: float  # about how long one takes
    on_gpu: bool  # or may be: the process has a context on one
    clock_max_mhz: float | None
    least_s: float | None  # None: as long as is honest
    most_s: float
    target_ratio: float
    warmup_most_s: float
    told: Mapping[str, FactValue]
    now_ns: Callable[[], int]
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """How the work was brought to its steady state, and whether it came to one."""

    count: int  # calls
    took_s: float
    steady: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # arrays have no one answer to ==
class Attempt:
    """One measurement and what the judge said of it."""

    timings: Timings
    interval: Interval | None  # of the median; None: its width is not known
    warmup: Warmup
    took_s: float
    busy_ratio: float | None
    power_limited: bool | None
    stopped: Stopped
    run: str | None
    verdicts: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        """Of the worst GPU."""
        return self.verdicts[0]


class _Chunks:
    """Takes entries, about so many as fill a chunk."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._entry_s = job.entry_s
        self.pieces: list[Timings] = []
        self.busy_s: float | None = None

    def take(self) -> Timings:
        job = self._job
        count = int(np.clip(CHUNK_S / max(self._entry_s, 1e-9), 1, _ENTRIES_MOST_COUNT))
        begin_ns = job.now_ns()
        taken = job.timer.take(job.plan, count)
        self._entry_s = (job.now_ns() - begin_ns) / 1e9 / count
        if taken.busy_s is not None:
            self.busy_s = (self.busy_s or 0.0) + taken.busy_s
        self.pieces.append(taken.timings)
        return taken.timings

    def all(self) -> Timings:
        # Joined once and kept so: joining a list again and again would take the square of its length.
        self.pieces = [joined(self.pieces)]
        return self.pieces[0]


def attempt(job: Job, opening: AbstractContextManager[MeasuredWindow]) -> Attempt:
    # All that takes time is made before the warm-up: between it and the first timed entry the GPU must not rest.
    least_s = job.least_s if job.least_s is not None else QUICK.measure_s
    stopping = Stopping(least_s=least_s, most_s=job.most_s, target_ratio=job.target_ratio)
    chunks, spent_s, limited = _Chunks(job), 0.0, None
    clock_max_mhz, warmup = warm_up(job)
    stopped: Stopped | None = None
    with opening as window:
        begin_ns = job.now_ns()
        while stopped is None:
            chunks.take()
            spent_s = (job.now_ns() - begin_ns) / 1e9
            if stopping.asks(spent_s):
                timings = chunks.all()
                limited = power_limited(timings, clock_max_mhz)
                # Where the clock is not known a GPU is given the patience that a cap needs.
                if job.on_gpu and job.least_s is None and limited is not False:
                    stopping.need(CAPPED.measure_s)
                if stopping.asks(spent_s):
                    stopped = stopping.look(timings, spent_s)
            _show(job, "measuring", spent_s / max(stopping.least_s, 1e-9), stopping.interval)
        busy_ratio = min(1.0, chunks.busy_s / spent_s) if chunks.busy_s is not None and spent_s else None
        facts: dict[str, FactValue] = {
            "warmup_count": warmup.count, "warmup_s": warmup.took_s, "warmup_steady": warmup.steady, **job.told,
        }  # fmt: skip
        if busy_ratio is not None:
            facts["busy_ratio"] = busy_ratio
        window.tell(**facts)
        window.record(timings)
    job.progress.show("waiting for the verdict", 1.0)
    return Attempt(
        timings=timings, interval=stopping.interval, warmup=warmup, took_s=spent_s, busy_ratio=busy_ratio,
        power_limited=limited, stopped=stopped, run=window.run_id, verdicts=window.verdicts,
    )  # fmt: skip


def warm_up(
    job: Job,
    *,
    first_s: Annotated[float, "the clock stands at its highest until the cap engages, which takes 56-75 ms"] = 0.1,
) -> tuple[float | None, Warmup]:
    """The board's highest clock, from what was seen where torch does not tell it, and how the warm-up went."""
    chunks, clock_max_mhz = _Chunks(job), job.clock_max_mhz
    begin_ns, spent_s, count, steady = job.now_ns(), 0.0, 0, False
    while spent_s < job.warmup_most_s and not steady:
        taken = chunks.take()
        count += len(taken.took_s) * taken.calls_count
        spent_s = (job.now_ns() - begin_ns) / 1e9
        timings = chunks.all()
        if job.clock_max_mhz is None and timings.sm_clock_mhz is not None and spent_s <= first_s + CHUNK_S:
            clock_max_mhz = float(np.nanquantile(timings.sm_clock_mhz, 0.99))
        quick = not job.on_gpu or power_limited(timings, clock_max_mhz) is False
        patience = QUICK if quick else CAPPED
        steady = is_steady(timings, patience)
        _show(job, "warming up", spent_s / patience.warmup_s, None)
    return clock_max_mhz, Warmup(count=count, took_s=spent_s, steady=steady)


def _show(job: Job, doing: str, share_ratio: float, interval: Interval | None) -> None:
    width = f"±{100 * interval.half_width_ratio:.2g} %, wanted ±{100 * job.target_ratio:.2g} %" if interval else ""
    job.progress.show(doing, share_ratio, width)
