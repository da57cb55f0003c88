"""A program that uses the source on the mock driver and prints the results as JSON; tests run the program."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict
from typing import Any

from annotate.evidence import Lane, signals
from gpuwatch import clock
from gpuwatch.clock import MonotonicClock
from gpuwatch.sampling.plan import PULSE
from gpuwatch.sources import open_ahead, open_source
from gpuwatch.sources.nvml import Nvml
from gpuwatch.sources.nvml.compiled_loop import CompiledLoop

MS = 1_000_000
ROW = signals(Lane.FAST)


def _series(source: Nvml, uuid: str) -> CompiledLoop:
    found = source.series(uuid, ROW, PULSE)
    assert found is not None
    return found


def agree() -> Any:
    """Return, for every GPU, a row and a pulse from the loop, and a row from single calls."""
    found, source = [], Nvml()
    for device in source.devices():
        loop, now_ns = _series(source, device.uuid), clock.now_ns()
        ((row,), no_error) = loop.run(now_ns, 0, MS, row_at_ns=0, row_after_ns=MS)
        ((pulse,), none_either) = loop.run(now_ns, 0, MS, row_at_ns=now_ns, row_after_ns=10_000 * MS)
        assert no_error is none_either is None
        alone = source.read(device.uuid, Lane.FAST, ROW)
        found.append({"row": asdict(row.reading), "pulse": asdict(pulse.reading), "alone": asdict(alone)})
    return found


def cadence() -> Any:
    """Return passes at 100 Hz for 0.6 s that start three deadlines late, and the results of interrupts and of a full buffer."""
    source = Nvml()
    loop = _series(source, source.devices()[0].uuid)
    begin_ns = clock.now_ns() - 35 * MS
    passes, _ = loop.run(begin_ns, begin_ns + 600 * MS, 10 * MS, row_at_ns=0, row_after_ns=45 * MS)
    on_time = [[(each.due_ns - begin_ns) / MS, each.late_ns, each.missed_count, each.reading.lane] for each in passes]
    interrupts = threading.Timer(0.2, loop.interrupt)
    interrupts.start()
    asked_ns = clock.now_ns()
    cut, _ = loop.run(asked_ns, asked_ns + 10_000 * MS, 50 * MS, row_at_ns=0, row_after_ns=0)
    loop.interrupt()  # an interrupt before a run makes the run return at once
    asked_ns = clock.now_ns()
    none, _ = loop.run(asked_ns + 5_000 * MS, asked_ns + 10_000 * MS, 50 * MS, row_at_ns=0, row_after_ns=0)
    most, _ = loop.run(asked_ns, asked_ns + 10_000 * MS, MS, row_at_ns=0, row_after_ns=0)
    return {"on_time": on_time, "cut": len(cut), "none": len(none), "most": len(most)}


def rest() -> Any:
    """Return, for every GPU, the lanes of four runs at rest with their durations, and the result of an interrupt."""
    found, source = [], Nvml()
    for device in source.devices():
        loop, row_at_ns = _series(source, device.uuid), clock.now_ns()
        seen: list[Any] = []
        for _ in range(4):
            begin_ns = clock.now_ns()
            until_ns = begin_ns + (400 * MS if len(seen) == 3 else 0)  # the last run makes two rows
            passes, _ = loop.run(begin_ns, until_ns, 10 * MS, row_at_ns=row_at_ns, row_after_ns=295 * MS, is_resting=True)
            row_at_ns = max([each.reading.at_ns for each in passes if each.reading.lane is Lane.FAST], default=row_at_ns)
            seen.append([[each.reading.lane for each in passes], (clock.now_ns() - begin_ns) / MS])
        loop.interrupt()
        now_ns = clock.now_ns()
        due_ns = now_ns + 5_000 * MS
        none, _ = loop.run(due_ns, due_ns, 10 * MS, row_at_ns=now_ns, row_after_ns=10_000 * MS, is_resting=True)
        found.append({"seen": seen, "none": len(none)})
    return found


def ahead() -> Any:
    """Return the UUIDs that two sources list, of which the first was opened ahead, and whether they are two."""
    open_ahead()
    sources = [open_source("nvml", MonotonicClock()) for _ in range(2)]
    return {"listed": [[device.uuid for device in each.devices()] for each in sources], "two": sources[0] is not sources[1]}


if __name__ == "__main__":
    print(json.dumps({"agree": agree, "cadence": cadence, "rest": rest, "ahead": ahead}[sys.argv[1]]()))
