"""A simulated day of a machine with eight GPUs, faster than real time: ``python -m tests.faults.day --hours 24``.

The day runs a daemon's samplers and store on virtual clocks, which advance only during waits, and a real judge's worker.
Because of the small budget, segments start and are dropped all day.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import heapq
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from annotate.evidence import Device
from gpuwatch import clock
from gpuwatch.clock import VirtualClock
from gpuwatch.daemon.judging import Judge
from gpuwatch.interfaces import Sweep
from gpuwatch.sampling.measure import measure
from gpuwatch.sampling.plan import PlanTargets
from gpuwatch.sampling.sampler import Sampler
from gpuwatch.sources.simulated import OWN_PID, Scene, Simulated
from gpuwatch.sources.simulated.kernels import ATTENTION, CONVOLUTION, COPY, GEMM
from gpuwatch.sources.simulated.scenes import Phase
from gpuwatch.store import Run, Store, StoreLimits
from gpuwatch.store.files import SEGMENTS
from tests.faults import results, stores
from tests.gpuwatch.store.stored import a_run
from tests.waiting import PATIENCE_S, let_pass_async, wait_until_async

S = 1_000_000_000
BEGIN_NS = 1_000 * S
WALL_OFFSET_NS = 1_700_000_000 * S
BOOT = "00000000-0000-4000-8000-000000000024"
GPUS_COUNT = 8
HOURS = 24.0
BUDGET_BYTES, SEGMENT_BYTES = 24 << 20, 2 << 20
PERIOD_NS = 100_000_000  # outside windows; a daemon samples twice as often
WORK_S, ROUND_S = 1200.0, 2400.0  # each GPU works for twenty of every forty minutes
WINDOW_EVERY_NS, WINDOW_NS, TAIL_NS = 60 * S, 5 * S, S
SHARED_EVERY_COUNT = 16  # every nth window covers all GPUs, the others one
LOOK_EVERY_NS = 900 * S
LOGS_BYTES = 2 << 20  # more than the megabyte at which the live segment's log is written back
SETTLED_HOURS = 1.0
MOST_GROWN_RATIO = 0.05


def scenes() -> tuple[Scene, ...]:
    """Return scenes that start work some seconds apart and overlap for most of their work."""
    kernels = (GEMM, COPY, ATTENTION, CONVOLUTION)
    return tuple(
        Scene(
            name=f"job-{i}", says="works for twenty minutes of every forty", context_s=5.0 * i, length_s=ROUND_S,
            phases=(Phase(begin_s=5.0 * i, end_s=5.0 * i + WORK_S, kernel=kernels[i % len(kernels)]),),
        )
        for i in range(GPUS_COUNT)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, its sampler and the sampler's private clock."""

    device: Device
    clock: VirtualClock
    sampler: Sampler

    @staticmethod
    def watched(position: int, store: Store, stop: threading.Event) -> Gpu:
        its_clock = VirtualClock(BEGIN_NS)
        source = Simulated(scenes(), its_clock, epoch_ns=BEGIN_NS)
        device = source.devices()[position]
        plan = measure(source, device, its_clock, PlanTargets(idle_period_ns=PERIOD_NS))
        store.put_device(device)
        store.put_refresh(device.uuid, plan.refresh_ns)
        return Gpu(device, its_clock, Sampler(source, plan, (store,), its_clock, stop))


class Windows:
    """One window per minute: opened, closed, and judged after its tail, in a daemon's order of events."""

    def __init__(self, store: Store, folder: Path, gpus: Sequence[Gpu]) -> None:
        self._store, self._gpus = store, gpus
        self._judge_worker, self._loop = Judge(folder), asyncio.new_event_loop()
        self._open: tuple[Gpu, ...] = ()
        self._begin_ns, self._end_ns = 0, 0
        self._count = 0
        self._due_ns = BEGIN_NS + 30 * S
        self.statuses: Counter[str] = Counter()  # number of windows by status
        self.verdicts_count = 0

    def pass_by(self, now_ns: int) -> None:
        """Run the next step of the window if it is due."""
        if now_ns < self._due_ns:
            return
        if not self._open:
            self._begin()
        elif not self._end_ns:
            self._end(now_ns)
        else:
            self._judge()

    def close(self) -> None:
        self._judge_worker.stop()
        self._loop.run_until_complete(self._worker_left())
        self._loop.close()

    @staticmethod
    async def _worker_left() -> None:
        await wait_until_async(lambda: not list(_workers()), what="the judge's worker is gone")
        await let_pass_async(0.1, "the worker's pipes are closed")

    def _begin(self) -> None:
        self._count += 1
        shared = self._count % SHARED_EVERY_COUNT == 0
        self._open = tuple(self._gpus) if shared else (self._gpus[self._count % len(self._gpus)],)
        for gpu in self._open:
            gpu.sampler.set_active(True)
            gpu.sampler.edge()
        self._begin_ns = max(gpu.clock.now_ns() for gpu in self._open)
        self._end_ns, self._due_ns = 0, self._begin_ns + WINDOW_NS

    def _end(self, now_ns: int) -> None:
        self._end_ns, self._due_ns = now_ns, now_ns + TAIL_NS
        for gpu in self._open:
            gpu.sampler.edge()
            gpu.sampler.set_active(False)

    def _judge(self) -> None:
        run = a_run(
            id=f"{self._begin_ns // S:08x}00", boot_id=BOOT, begin_ns=self._begin_ns, end_ns=self._end_ns, status="judging",
            uuids=tuple(gpu.device.uuid for gpu in self._open), pid=OWN_PID, pids=frozenset({OWN_PID}), declared={},
            begun_wall_s=(self._begin_ns + WALL_OFFSET_NS) / S, source="simulated", simulated=True,
        )  # fmt: skip
        self._put(run, {})
        judgement = self._loop.run_until_complete(self._judge_worker.judge(run.id))
        assert len(judgement.verdicts) == len(self._open), judgement.why
        status = str(judgement.verdicts[0]["status"])
        self._put(replace(run, status=status, verdicts=tuple(judgement.verdicts)), judgement.evidence)
        self.statuses[status] += 1
        self.verdicts_count += len(judgement.verdicts)
        self._open, self._due_ns = (), self._begin_ns + WINDOW_EVERY_NS

    def _put(self, run: Run, evidence: dict[str, bytes]) -> None:
        self._store.put_run(run, evidence)
        assert self._store.flush(PATIENCE_S)


def day(
    folder: Path, hours: float = HOURS, *, budget_bytes: int = BUDGET_BYTES, segment_bytes: int = SEGMENT_BYTES,
    gpus_count: int = GPUS_COUNT, progress: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run the day; return its costs.

    Raises AssertionError: for lost rows, unjudged windows, growth, too large segments or logs, or no dropped segment.
    Raises stores.BrokenError: for a damaged store.
    """
    virtual, stop = VirtualClock(BEGIN_NS), threading.Event()
    store = Store(
        folder, source="simulated", boot_id=BOOT, clock=virtual,
        limits=StoreLimits(budget_bytes=budget_bytes, segment_bytes=segment_bytes),
        wall_offset_ns=lambda: WALL_OFFSET_NS,
    )  # fmt: skip
    gpus = [Gpu.watched(position, store, stop) for position in range(gpus_count)]
    windows = Windows(store, folder, gpus)
    end_ns, look_ns, commit_ns = BEGIN_NS + round(hours * 3600 * S), BEGIN_NS, BEGIN_NS
    looks: list[dict[str, Any]] = []
    look_every_ns = min(LOOK_EVERY_NS, (end_ns - BEGIN_NS) // 10)
    sweeps_count = segments_max_bytes = logs_max_bytes = 0
    begun_ns = clock.now_ns()
    try:
        for sweep in _merged(gpus):
            store.take(sweep)
            sweeps_count += 1
            if sweep.due_ns < commit_ns:
                continue
            virtual.wait_until(sweep.due_ns, stop)
            now_ns = virtual.now_ns()
            assert store.flush(PATIENCE_S)
            commit_ns = now_ns + S // 2  # a daemon commits at this period
            segments_max_bytes = max(segments_max_bytes, _bytes(folder, SEGMENTS))
            logs_max_bytes = max(logs_max_bytes, _bytes(folder, f"{SEGMENTS}-wal"))
            windows.pass_by(now_ns)
            if now_ns >= look_ns:
                looks.append(_look(folder, store, (now_ns - BEGIN_NS) / 3600 / S))
                look_ns += look_every_ns
                if progress:
                    print(round((clock.now_ns() - begun_ns) / S), looks[-1], dict(windows.statuses), flush=True)
            if now_ns >= end_ns:
                break
        kept = store.statistics()
    finally:
        stop.set()
        windows.close()
        store.close()
    assert kept["dropped_count"] == 0, kept
    assert segments_max_bytes <= budget_bytes + segment_bytes, segments_max_bytes
    assert logs_max_bytes <= LOGS_BYTES, logs_max_bytes
    assert kept["dropped_segments_count"] > 0, "the day was too short for its budget"
    _check_growth(looks)
    stores.check_files(folder)
    stores.check_rows(folder)
    assert len(stores.check_runs(folder)) == sum(windows.statuses.values())
    return {
        "simulated_hours": hours, "gpus_count": gpus_count, "period_s": PERIOD_NS / S,
        "took_s": round((clock.now_ns() - begun_ns) / S), "sweeps_count": sweeps_count, "rows_count": kept["rows_count"],
        "windows": dict(sorted(windows.statuses.items())), "verdicts_count": windows.verdicts_count,
        "budget_bytes": budget_bytes, "segment_bytes": segment_bytes, "segments_max_bytes": segments_max_bytes,
        "logs_max_bytes": logs_max_bytes, "dropped_segments_count": kept["dropped_segments_count"], "looks": looks,
    }  # fmt: skip


def _merged(gpus: Sequence[Gpu]) -> Iterator[Sweep]:
    """Yield the sweeps of all GPUs in the order of their deadlines."""
    return heapq.merge(*(gpu.sampler.sweeps() for gpu in gpus), key=lambda sweep: sweep.due_ns)


def _look(folder: Path, store: Store, hours: float) -> dict[str, Any]:
    gc.collect()
    kept = store.statistics()
    return {
        "hours": round(hours, 2), "memory_bytes": stores.memory_bytes(os.getpid()), "judge_memory_bytes": sum(_workers()),
        "descriptors_count": stores.descriptors(os.getpid()), "threads_count": stores.threads(os.getpid()),
        "readings_bytes": kept["readings_bytes"], "ledger_bytes": kept["ledger_bytes"],
        "segments_count": len(list(folder.glob(SEGMENTS))),
    }  # fmt: skip


def _bytes(folder: Path, pattern: str) -> int:
    """Return the size on disk of the files of a pattern."""
    return sum(path.stat().st_size for path in folder.glob(pattern))


def _workers() -> Iterator[int]:
    """Yield the resident memory of each judge's worker; this process may have other children."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, OSError):
            if "gpuwatch.daemon.judge_worker" in child.cmdline():
                yield stores.memory_bytes(child.pid)


def _check_growth(looks: list[dict[str, Any]]) -> None:
    """Check the growth.  Raises AssertionError: for one more thread, three more descriptors, or too much more memory."""
    judged = [look for look in looks if look["judge_memory_bytes"]]
    for of, more_count in (("threads_count", 0), ("descriptors_count", 2)):
        assert max(look[of] for look in judged) <= judged[0][of] + more_count, (of, judged)
    if looks[-1]["hours"] >= 2 * SETTLED_HOURS:
        for of in ("memory_bytes", "judge_memory_bytes"):
            assert growth_ratio(looks, of) <= MOST_GROWN_RATIO, (of, looks)


def growth_ratio(looks: list[dict[str, Any]], of: str) -> float:
    """Return the growth from the first tenth of the samples after settling to the last tenth."""
    settled = [look[of] for look in looks if look["hours"] >= SETTLED_HOURS]
    few = max(1, len(settled) // 10)
    return float(sum(settled[-few:]) / max(1, sum(settled[:few])) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=HOURS)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gw-day-"))
    found = day(folder, asked.hours, progress=True)
    shutil.rmtree(folder)
    looks = found.pop("looks")
    growth = {f"{of}_growth_ratio": round(growth_ratio(looks, of), 4) for of in ("memory_bytes", "judge_memory_bytes")}
    most = {f"{of}_max": max(look[of] for look in looks) for of in looks[0] if of != "hours"}
    results.keep("day", {**found, **growth, **most, "first": looks[0], "last": looks[-1]})


if __name__ == "__main__":
    main()
