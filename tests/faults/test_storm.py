"""Tests of hundreds of short processes a second with reused PIDs: memory is bounded, and own processes are recognised."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from annotate.evidence import Lane, Ownership, Process, ProcessList
from gpuwatch.clock import VirtualClock
from gpuwatch.interfaces import Sweep
from gpuwatch.store import Reader
from gpuwatch.store.segment import KNOWN_COUNT
from tests.gpuwatch.store.stored import a_run, opened
from tests.gpuwatch.store.streams import BEGIN_NS, DEVICE, UUID, fast
from tests.waiting import PATIENCE_S

S = 1_000_000_000
OWN = Process(pid=500, name="python", started_s=1.7e9, memory_bytes=1 << 30)


def storm(seconds: int, *, born: int = 200, pids: int = 1000) -> Iterator[Sweep]:
    """Yield a fast row and a process list five times a second; short processes reuse 1000 PIDs by default."""
    dice = random.Random(0)
    for fifth in range(seconds * 5):
        at_ns = BEGIN_NS + fifth * S // 5
        some = dice.sample(range(1000, 1000 + pids), born // 5)
        others = [
            Process(pid=pid, name=f"burst-{fifth % 7}", started_s=1.7e9 + fifth / 5, memory_bytes=1 << 20) for pid in some
        ]
        process_list = ProcessList(uuid=UUID, at_ns=at_ns, took_ns=10_000, processes=(OWN, *others))
        yield fast(at_ns, sm_clock_mhz=1980, power_w=500.0 + fifth % 9)
        yield Sweep(UUID, Lane.PROCESSES, at_ns, 0, 0, process_list)


def test_process_storm_is_stored_within_bounded_memory(tmp_path: Path) -> None:
    """A storm of processes is stored completely, and its names do not fill the memory."""
    virtual = VirtualClock(BEGIN_NS)
    store = opened(tmp_path, clock=virtual)
    store.put_device(DEVICE)
    for sweep in storm(120):
        store.take(sweep)
    assert store.flush(PATIENCE_S)
    segment = store.folder.segments.live
    assert len(segment._processes) <= KNOWN_COUNT + 41
    with Reader(tmp_path) as reader:
        run = a_run(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 120 * S, pids=frozenset({OWN.pid}))
        trace = reader.evidence(run, UUID).trace
    assert len(trace.process_lists) == 600
    assert {len(process_list.processes) for process_list in trace.process_lists} == {41}
    for process_list in trace.process_lists:
        own = [process for process in process_list.processes if process.ownership is Ownership.OWN]
        assert [process.pid for process in own] == [OWN.pid]
        assert all(p.ownership is Ownership.FOREIGN for p in process_list.processes if p.pid != OWN.pid)
    names = {process.name for process in trace.process_lists[7].processes}
    assert names == {"python", "burst-0"}
    assert store.statistics()["dropped_count"] == 0
    store.close()
