"""All mutators, at least one per rule."""

from __future__ import annotations

from tests.campaign.mutator import Mutator
from tests.campaign.mutators import (
    caches,
    clock_control,
    clocks,
    comparison,
    comparison_design,
    contention,
    coverage,
    harness,
    identity,
    idle,
    plausibility,
    power,
    sharing,
    steadiness,
    thermal,
    times,
    timing,
    untrusted,
)

MUTATORS: tuple[Mutator, ...] = (
    *coverage.MUTATORS,
    *idle.MUTATORS,
    *thermal.MUTATORS,
    *power.MUTATORS,
    *clocks.MUTATORS,
    *clock_control.MUTATORS,
    *steadiness.MUTATORS,
    *contention.MUTATORS,
    *sharing.MUTATORS,
    *timing.MUTATORS,
    *harness.MUTATORS,
    *caches.MUTATORS,
    *plausibility.MUTATORS,
    *untrusted.MUTATORS,
    *times.MUTATORS,
    *identity.MUTATORS,
    *comparison.MUTATORS,
    *comparison_design.MUTATORS,
)
