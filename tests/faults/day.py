"""A simulated day on one machine, as fast as the processor allows: ``python -m tests.faults.day --hours 24``.

The sampler, the store and the judge's worker of a daemon, on a clock that passes only while somebody waits.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuwatch import clock, lanes
from gpuwatch.clock import VirtualClock
from gpuwatch.judging import Judge
from gpuwatch.sampler import Sampler
from gpuwatch.sources.simulated import Simulated
from gpuwatch.store import Run, Store
from tests.faults import results, stores
from tests.gpuwatch.store.stored import a_run

S = 1_000_000_000
BEGIN_NS = 1_000 * S
BOOT = "00000000-0000-4000-8000-000000000024"
WINDOW_EVERY_NS, WINDOW_NS = 60 * S, 5 * S
LOOK_EVERY_NS = 900 * S


def day(
    folder: Path, hours: float, *, scene: str = "bursty", budget_bytes: int = 32 << 20, progress: bool = False
) -> dict[str, Any]:
    """Raises AssertionError for what was not judged; gives what it took, quarter of an hour by quarter."""
    virtual = VirtualClock(BEGIN_NS)
    source = Simulated(scene, virtual, epoch_ns=BEGIN_NS)
    (device,) = source.devices()
    plan = lanes.measure(source, device, virtual, budget_ratio=0.01, idle_period_ns=50_000_000, active_period_ns=10_000_000)
    stop = threading.Event()
    store = Store(
        folder, source=source.name, boot_id=BOOT, clock=virtual, budget_bytes=budget_bytes, segment_bytes=4 << 20,
        wall_offset_ns=lambda: 1_700_000_000 * S,
    )  # fmt: skip
    store.put_device(device)
    store.put_refresh(device.uuid, plan.refresh_ns)
    sampler = Sampler(source, device, plan, (), virtual, stop)
    judge, loop = Judge(folder), asyncio.new_event_loop()
    end_ns, looks, statuses = BEGIN_NS + round(hours * 3600 * S), [], dict[str, int]()
    sweeps_count, window_ns, look_ns, commit_ns = 0, BEGIN_NS + 30 * S, BEGIN_NS, BEGIN_NS
    begun_ns = clock.now_ns()
    try:
        for sweep in sampler.sweeps():
            store.take(sweep)
            sweeps_count += 1
            now_ns = virtual.now_ns()
            if now_ns >= commit_ns:  # as often as a daemon's thread commits, by this clock
                assert store.flush(60.0)
                commit_ns = now_ns + S // 2
            if now_ns >= window_ns + S:
                status = _window(store, judge, loop, device.uuid, window_ns)
                statuses[status] = statuses.get(status, 0) + 1
                window_ns += WINDOW_EVERY_NS
            if now_ns >= look_ns:
                looks.append(_look(store, judge, (now_ns - BEGIN_NS) / 3600 / S))
                look_ns += LOOK_EVERY_NS
                if progress:
                    print(round((clock.now_ns() - begun_ns) / S), looks[-1], statuses, flush=True)
            if now_ns >= end_ns:
                break
    finally:
        stop.set()
        judge.stop()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()
        store.close()
    stores.check_files(folder)
    stores.check_rows(folder)
    runs = stores.check_runs(folder)
    assert len(runs) == sum(statuses.values())
    return {
        "simulated_hours": hours, "took_s": round((clock.now_ns() - begun_ns) / S), "sweeps_count": sweeps_count,
        "windows": statuses, "budget_bytes": budget_bytes, "looks": looks,
    }  # fmt: skip


def _window(store: Store, judge: Judge, loop: asyncio.AbstractEventLoop, uuid: str, end_ns: int) -> str:
    """The five seconds before a time, judged as a daemon would.  Returns the status."""
    run = a_run(
        id=f"{end_ns // S:08x}00", boot_id=BOOT, begin_ns=end_ns - WINDOW_NS, end_ns=end_ns, uuids=(uuid,), status="judging",
        begun_wall_s=1_700_000_000 + (end_ns - WINDOW_NS) / S, source="simulated", simulated=True, policy={"claim": "sustained"},
    )  # fmt: skip
    store.put_run(run)
    assert store.flush(60.0)
    judgement = loop.run_until_complete(judge.judge(run.id))
    assert judgement.verdicts, judgement.why
    status = str(judgement.verdicts[0]["status"])
    done = a_run(**{**_fields(run), "status": status, "verdicts": tuple(judgement.verdicts)})
    store.put_run(done, judgement.evidence)
    return status


def _fields(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in Run.__slots__}


def _look(store: Store, judge: Judge, hours: float) -> dict[str, Any]:
    gc.collect()
    kept = store.statistics()
    return {
        "hours": round(hours, 2), "memory_bytes": stores.memory_bytes(os.getpid()), "judge_memory_bytes": sum(_workers()),
        "descriptors_count": stores.descriptors(os.getpid()), "threads_count": stores.threads(os.getpid()),
        "readings_bytes": kept["readings_bytes"], "ledger_bytes": kept["ledger_bytes"], "dropped_count": kept["dropped_count"],
    }  # fmt: skip


def _workers() -> Iterator[int]:
    for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        yield stores.memory_bytes(int(child))


def growth_ratio(looks: list[dict[str, Any]], of: str, *, settled_hours: float = 1.0) -> float:
    """How much more the last quarter of the looks takes than the first ones after it had settled."""
    settled = [look[of] for look in looks if look["hours"] >= settled_hours]
    few = max(1, len(settled) // 10)
    return float(sum(settled[-few:]) / max(1, sum(settled[:few])) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
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
