"""Every mutator, and the rules that have none, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from tests.campaign.mutator import Mutator
from tests.campaign.mutators import (
    clock_control,
    clocks,
    comparison,
    contention,
    coverage,
    harness,
    identity,
    plausibility,
    power,
    sharing,
    steadiness,
    thermal,
    times,
    timing,
)

MUTATORS: tuple[Mutator, ...] = (
    *coverage.MUTATORS,
    *thermal.MUTATORS,
    *power.MUTATORS,
    *clocks.MUTATORS,
    *clock_control.MUTATORS,
    *steadiness.MUTATORS,
    *contention.MUTATORS,
    *sharing.MUTATORS,
    *timing.MUTATORS,
    *harness.MUTATORS,
    *plausibility.MUTATORS,
    *times.MUTATORS,
    *identity.MUTATORS,
    *comparison.MUTATORS,
)

# Why no hazard is injected for a rule; its false alarms are counted all the same.
NOT_MEASURED: Mapping[str, str] = {}
