"""What the times themselves betray: noise, outliers, modes, correlation, cold starts."""

from __future__ import annotations

from annotate.rule import Rule

RULES: tuple[Rule, ...] = ()
