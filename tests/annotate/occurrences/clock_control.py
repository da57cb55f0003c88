from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, Timings
from tests.annotate.builders import BEGIN_NS, DEVICE, capped_ns, evidence


def stamped(mhz: float, *, period_s: float = 0.01, length_s: float = 6.0) -> Timings:
    count = int(length_s / period_s)
    at_ns = BEGIN_NS + (np.arange(count) * period_s * 1e9).astype(np.int64)
    return Timings(at_ns, np.full(count, period_s * 0.99), np.full(count, mhz))


def scenes() -> Iterator[Evidence]:
    capped = {"power_cap_ns": capped_ns(), "power_violation_ns": capped_ns(), "sm_clock_mhz": 1485}
    yield evidence(signals={**capped, "sm_clock_lock_mhz": 1980}, timings=stamped(1330.0))
    yield evidence(signals={**capped, "sm_clock_lock_mhz": 1980, "sm_clock_mhz": None})
    yield evidence(signals={"sm_clock_lock_mhz": 1500})
    yield evidence(signals={"power_limit_w": 500.0})
    yield evidence(signals={"event_reasons_mask": 0x2}, device=replace(DEVICE, power_limit_w=500.0))
    yield evidence(signals=capped, timings=stamped(1330.0))
    yield evidence(declared={"true_clock_mhz": 1727.0, "stamped_s": 5.9})
    record = {"canary_record_clock_mhz": 1980.0, "canary_record_copy_bytes_count": 4.2e12, "canary_record_count": 7}
    for clock_mhz, copied in ((1727.0, 4.2e12), (1900.0, 4.2e12), (1980.0, 3.9e12)):
        yield evidence(declared={"canary_clock_mhz": clock_mhz, "canary_copy_bytes_count": copied, **record})
    yield evidence(declared={"canary_clock_mhz": 1727.0})
    yield evidence(declared={"canary_clock_mhz": 1727.0}, signals={"sm_clock_mhz": None})
