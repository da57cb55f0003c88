"""Windows of an idle GPU, or of one that paused."""

from __future__ import annotations

from collections.abc import Iterator

from annotate.evidence import Evidence
from tests.annotate.builders import Signal, evidence

RESTING_W = 120.0


def resting(t: float) -> bool:
    return 2.0 < t < 2.5


def scenes() -> Iterator[Evidence]:
    idle: dict[str, Signal] = {"utilization_ratio": 0.0, "sm_activity_ratio": 0.0, "power_w": RESTING_W}
    yield evidence(signals=idle | {"energy_j": lambda t: 1000.0 + RESTING_W * (t + 100)}, processes=[])
    yield evidence(signals={"power_w": lambda t: RESTING_W if resting(t) else 566.0})
