"""Every rule, in the order reports list them: first whether the evidence is good, then what it shows."""

from annotate.rule import Rule
from annotate.rules import (
    caches,
    clock_control,
    clocks,
    comparison,
    comparison_design,
    contention,
    coverage,
    harness,
    identity,
    numbers,
    plausibility,
    power,
    shape,
    sharing,
    steadiness,
    thermal,
    timing,
    warmup,
)

RULES: tuple[Rule, ...] = (
    *coverage.RULES,
    *thermal.RULES,
    *power.RULES,
    *clocks.RULES,
    *clock_control.RULES,
    *steadiness.RULES,
    *contention.RULES,
    *sharing.RULES,
    *timing.RULES,
    *harness.RULES,
    *caches.RULES,
    *plausibility.RULES,
    *warmup.RULES,
    *numbers.RULES,
    *shape.RULES,
    *identity.RULES,
    *comparison.RULES,
    *comparison_design.RULES,
)
