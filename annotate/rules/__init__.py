"""Every rule, in the order reports list them: first whether the evidence is good, then what it shows."""

from __future__ import annotations

from annotate.rule import Rule
from annotate.rules import clocks, contention, coverage, identity

RULES: tuple[Rule, ...] = (
    *coverage.RULES,
    *clocks.RULES,
    *contention.RULES,
    *identity.RULES,
)
