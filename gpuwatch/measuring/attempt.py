"""One attempt: a warm-up, then a measurement inside a window."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np

from annotate.evidence import OtherWork, Timings
from annotate.stats.intervals import Interval
from annotate.verdict import Verdict
from gpuwatch.measuring.bench_arguments import Limits
from gpuwatch.measuring.progress import Progress
from gpuwatch.measuring.steady import CAPPED, QUICK, is_steady, power_limited
from gpuwatch.measuring.stopping import Stopped, Stopping
from gpuwatch.timers import Timer, TimingPlan, joined
from gpuwatch.timers.timer_protocol import joined_other_work
from gpuwatch.wire.messages import FactValue

CHUNK_S = 0.2
_ENTRIES_MOST_COUNT = 2000


class MeasuredWindow(Protocol):
    """The part of a window that a benchmark uses."""

    run_id: str | None

    def declare(self, **facts: FactValue) -> None: ...

    def record(self, times: Timings) -> None: ...

    def record_other_work(self, other: OtherWork) -> None: ...

    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The inputs that all attempts share."""

    timer: Timer
    plan: TimingPlan
    entry_s: float  # estimated
    has_gpu: bool  # the process has a context on a GPU
    clock_max_mhz: float | None
    limits: Limits
    facts: Mapping[str, FactValue]  # facts to declare in each window
    now_ns: Callable[[], int]
    progress: Progress

    def show(self, doing: str, share_ratio: float, interval: Interval | None) -> None:
        target = f"wanted ±{100 * self.limits.target_ratio:.2g} %"
        width = f"±{100 * interval.half_width_ratio:.2g} %, {target}" if interval else ""
        self.progress.show(doing, share_ratio, width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """The warm-up before an attempt."""

    count: int  # calls
    took_s: float
    steady: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # eq=False: comparing arrays gives no single truth value
class Attempt:
    """One measurement and its verdicts."""

    timings: Timings
    interval: Interval | None  # interval of the median; None means an unknown width
    warmup: Warmup
    took_s: float
    busy_ratio: float | None
    power_limited: bool | None
    stopped: Stopped
    run: str | None
    verdicts: tuple[Verdict, ...]
    issue_s: float | None = None  # the host's time to launch a call
    starved_ratio: float = 0.0  # ratio of the entries for whose launch the GPU waited

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the worst GPU."""
        return self.verdicts[0]


class _Chunks:
    """The entries of an attempt, taken in chunks of about ``CHUNK_S``."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._entry_s = job.entry_s
        self._begin_ns = job.now_ns()
        self._pieces: list[Timings] = []
        self._other: list[OtherWork | None] = []
        self.spent_s = 0.0
        self.busy_s: float | None = None
        self.issue_s: float | None = None
        self._starved_count = self._entries_count = 0

    def take(self) -> Timings:
        job = self._job
        count = int(np.clip(CHUNK_S / max(self._entry_s, 1e-9), 1, _ENTRIES_MOST_COUNT))
        begin_ns = job.now_ns()
        taken = job.timer.take(job.plan, count)
        end_ns = job.now_ns()
        self._entry_s = (end_ns - begin_ns) / 1e9 / count
        self.spent_s = (end_ns - self._begin_ns) / 1e9
        self.issue_s = taken.issue_s
        self._starved_count, self._entries_count = self._starved_count + taken.starved_count, self._entries_count + count
        if taken.busy_s is not None:
            self.busy_s = (self.busy_s or 0.0) + taken.busy_s
        self._pieces.append(taken.timings)
        self._other.append(taken.other)
        return taken.timings

    def all(self) -> Timings:
        """Return all taken entries as one series."""
        self._pieces = [joined(self._pieces)]
        return self._pieces[0]

    def other_work(self) -> OtherWork | None:
        """Return the timer's work outside the timed entries (flushes, holds, untimed entries); None without any."""
        return joined_other_work(self._other)

    @property
    def starved_ratio(self) -> float:
        return self._starved_count / self._entries_count if self._entries_count else 0.0

    @property
    def launches(self) -> Mapping[str, FactValue]:
        """Return the facts about launches; empty for the host's timer."""
        return {} if self.issue_s is None else {"issue_s": self.issue_s, "starved_ratio": self.starved_ratio}

    @property
    def busy_ratio(self) -> float | None:
        return min(1.0, self.busy_s / self.spent_s) if self.busy_s is not None and self.spent_s else None


def run_attempt(job: Job, opening: AbstractContextManager[MeasuredWindow]) -> Attempt:
    """Warm up, measure inside the window, and wait for its verdict."""
    # Everything slow happens before the warm-up: the GPU must not idle between the warm-up and the first timed entry.
    limits = job.limits
    least_s = limits.min_s if limits.min_s is not None else QUICK.measure_s
    stopping = Stopping(least_s=least_s, most_s=limits.max_s, target_ratio=limits.target_ratio)
    clock_max_mhz, warmup = warm_up(job)
    is_limited: bool | None = None
    stopped: Stopped | None = None
    with opening as window:
        chunks = _Chunks(job)
        while stopped is None:
            chunks.take()
            if stopping.is_due(chunks.spent_s):
                timings = chunks.all()
                is_limited = power_limited(timings, clock_max_mhz)
                # A power-capped GPU gets more time, and so does a GPU with an unknown clock.
                if job.has_gpu and limits.min_s is None and is_limited is not False:
                    stopping.require(CAPPED.measure_s)
                if stopping.is_due(chunks.spent_s):
                    stopped = stopping.decide(timings, chunks.spent_s)
            job.show("measuring", chunks.spent_s / max(stopping.least_s, 1e-9), stopping.interval)
        job.timer.rest()
        busy = {} if chunks.busy_ratio is None else {"busy_ratio": chunks.busy_ratio}
        warm = {"warmup_count": warmup.count, "warmup_s": warmup.took_s, "warmup_steady": warmup.steady}
        window.declare(**{**warm, **job.facts, **busy, **chunks.launches})
        window.record(timings)
        if (other := chunks.other_work()) is not None:
            window.record_other_work(other)
    job.progress.show("waiting for the verdict", 1.0)
    return Attempt(
        timings=timings,
        interval=stopping.interval,
        warmup=warmup,
        took_s=chunks.spent_s,
        busy_ratio=chunks.busy_ratio,
        power_limited=is_limited,
        stopped=stopped,
        run=window.run_id,
        verdicts=window.verdicts,
        issue_s=chunks.issue_s,
        starved_ratio=chunks.starved_ratio,
    )


def warm_up(
    job: Job,
    *,
    first_s: Annotated[float, "the clock is at its maximum until the cap engages, after 56-75 ms (docs/HARDWARE.md)"] = 0.1,
) -> tuple[float | None, Warmup]:
    """Warm up until steady, or for ``warmup_max_s``; return the highest clock, None if unknown, and the warm-up."""
    chunks, clock_max_mhz = _Chunks(job), job.clock_max_mhz
    count, steady = 0, False
    while chunks.spent_s < job.limits.warmup_max_s and not steady:
        taken = chunks.take()
        count += len(taken.took_s) * taken.calls_count
        timings = chunks.all()
        if job.clock_max_mhz is None and timings.sm_clock_mhz is not None and chunks.spent_s <= first_s + CHUNK_S:
            clock_max_mhz = float(np.nanquantile(timings.sm_clock_mhz, 0.99))
        is_quick = not job.has_gpu or power_limited(timings, clock_max_mhz) is False
        patience = QUICK if is_quick else CAPPED
        steady = is_steady(timings, patience)
        job.show("warming up", chunks.spent_s / patience.warmup_s, None)
    return clock_max_mhz, Warmup(count=count, took_s=chunks.spent_s, steady=steady)
