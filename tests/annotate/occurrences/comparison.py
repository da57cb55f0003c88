from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, Host, Timings
from tests.annotate.builders import BEGIN_NS, DEVICE, evidence


def scenes() -> Iterator[Evidence]:
    base = evidence()
    yield compared(evidence(), base)  # without a noise floor, not interleaved
    yield compared(evidence(device=replace(DEVICE, name="NVIDIA H100 PCIe", power_limit_w=350.0)), base)
    yield compared(evidence(device=replace(DEVICE, uuid="GPU-2")), base)
    yield compared(evidence(device=replace(DEVICE, driver_version="570.1")), base)
    yield compared(evidence(host=Host(boot_id="another")), base)
    yield compared(evidence(signals={"sm_clock_mhz": 1600}), base)
    yield compared(evidence(timings=times(0.2e-3), signals={"sm_clock_mhz": 1600}), evidence(timings=times(0.19e-3)))
    yield compared(evidence(declared={"variants_count": 20}), base)


def compared(about: Evidence, base: Evidence, *, after_s: float = 60.0) -> Evidence:
    shift_ns = round(after_s * 1e9)
    earlier = replace(base.window, begin_ns=base.window.begin_ns - shift_ns, end_ns=base.window.end_ns - shift_ns)
    columns = {name: replace(column, at_ns=column.at_ns - shift_ns) for name, column in base.trace.columns.items()}
    trace = replace(base.trace, columns=columns)
    timings = replace(base.timings, at_ns=base.timings.at_ns - shift_ns) if base.timings else None
    return replace(about, baseline=replace(base, window=earlier, trace=trace, timings=timings))


def times(
    took_s: float, *, clock_mhz: float | None = None, length_s: float = 6.0, noise_ratio: float = 0.002, seed: int = 0
) -> Timings:
    """Return iterations back to back with independent noise, stamped at ``clock_mhz`` if given."""
    count = int(length_s / took_s)
    took = took_s * np.exp(noise_ratio * np.random.default_rng(seed).standard_normal(count))
    at_ns = BEGIN_NS + np.concatenate([[0], np.cumsum(took)[:-1] * 1e9]).astype(np.int64)
    return Timings(at_ns, took, None if clock_mhz is None else np.full(count, clock_mhz))
