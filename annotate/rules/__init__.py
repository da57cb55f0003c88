"""All rules, in the order of reports: first the rules about the evidence itself, then the hazards."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from annotate.rule import Rule
from annotate.rules import (
    accounts,
    caches,
    clock_control,
    clocks,
    comparison,
    comparison_design,
    contention,
    coverage,
    harness,
    held_conditions,
    identity,
    idle,
    levels,
    numbers,
    plausibility,
    power,
    shape,
    sharing,
    steadiness,
    thermal,
    timing,
    untrusted,
    warmup,
)

_FAMILIES = (
    coverage,
    idle,
    accounts,
    thermal,
    power,
    clocks,
    clock_control,
    steadiness,
    held_conditions,
    contention,
    sharing,
    timing,
    harness,
    caches,
    plausibility,
    untrusted,
    warmup,
    numbers,
    shape,
    levels,
    identity,
    comparison,
    comparison_design,
)


def _gathered(name: str) -> Iterator[tuple[str, Any]]:
    return chain.from_iterable(getattr(family, name, {}).items() for family in _FAMILIES)


RULES: tuple[Rule, ...] = tuple(rule for family in _FAMILIES for rule in family.RULES)
# Retired names that older policies and verdicts may hold: rules with their replacement, and limits of current rules.
RETIRED: Mapping[str, str] = dict(_gathered("RETIRED"))
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = dict(_gathered("RETIRED_LIMITS"))
