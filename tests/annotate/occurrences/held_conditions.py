from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, RecordedWindow, Timings, WorkRecord
from tests.annotate.builders import evidence
from tests.annotate.occurrences.clock_control import stamped


def scenes() -> Iterator[Evidence]:
    toggling = {"sm_clock_mhz": lambda t: 1500 if int(t) % 2 else 1980}
    yield evidence(signals=toggling)
    yield evidence(signals=toggling, timings=stamped(1980.0))
    yield evidence(length_s=20.0, skip=lambda t: 4.0 < t < 5.6)
    yield evidence(declared={"locked_mhz": 1530.0}, timings=stamped(1500.0))
    usual = RecordedWindow(calls_rate_hz=450.0, mean_s=1.5e-3, median_s=1.5e-3, steady_clock_mhz=1980.0)
    record = WorkRecord((usual,) * 5)
    yield replace(evidence(timings=stamped(1980.0)), record=record)
    yield replace(evidence(signals={"sm_clock_mhz": 1500}), record=record)
    still = stamped(1.0)
    falling = np.linspace(1500.0, 1350.0, len(still.at_ns))
    yield evidence(signals={"sm_clock_mhz": None}, timings=Timings(still.at_ns, still.took_s, falling))
