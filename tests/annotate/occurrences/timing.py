"""Windows with faulty timers, or with a loop that waits for its launches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from annotate.evidence import Evidence, Fact, Timings
from tests.annotate.builders import BEGIN_NS, evidence


def every(period_s: float, *, took_s: float, length_s: float = 4.0, calls_count: int = 1) -> Timings:
    """Return a loop of equal entries, one per period; ``took_s`` is the time of one call."""
    count = int(length_s / period_s)
    at_ns = BEGIN_NS + (np.arange(count) * period_s * 1e9).astype(np.int64)
    return Timings(at_ns, np.full(count, took_s), None, calls_count)


def scenes() -> Iterator[Evidence]:
    unwaited: dict[str, Fact] = {"timer": "host", "sync_s": 1.5}
    yield evidence(declared=unwaited, timings=every(1e-3, took_s=0.9e-3))
    yield evidence(declared={"sync_s": 1.5})
    yield evidence(declared={"timer": "caller"}, timings=every(15e-3, took_s=0.24e-3))
    yield evidence(declared={"timer": "events"}, timings=every(1e-3, took_s=3e-6))
    yield evidence(signals={"utilization_ratio": 0.58}, timings=every(24e-6, took_s=20e-6, length_s=1.5))
    costly: dict[str, Fact] = {"timer": "events", "timer_overhead_s": 4e-6}
    yield evidence(declared=costly, timings=every(30e-6, took_s=7e-6, length_s=1.5))
    yield evidence(declared={"tampered": "torch.cuda.Event.elapsed_time, time.perf_counter"})
