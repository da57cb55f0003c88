"""Can the number be true?  Correctness, cached results, the roofline at the true clock."""

from __future__ import annotations

from annotate.rule import Rule

RULES: tuple[Rule, ...] = ()
