"""What the harness does around the work: profilers, caches, allocations, threads, input data."""

from __future__ import annotations

from annotate.rule import Rule

RULES: tuple[Rule, ...] = ()
