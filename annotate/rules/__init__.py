"""Every rule, in the order reports list them: first whether the evidence is good, then what it shows."""

from __future__ import annotations

from annotate.rule import Rule
from annotate.rules import clocks, contention, coverage, identity, power, steadiness, thermal

RULES: tuple[Rule, ...] = (
    *coverage.RULES,
    *thermal.RULES,
    *power.RULES,
    *clocks.RULES,
    *steadiness.RULES,
    *contention.RULES,
    *identity.RULES,
)
