"""May this window be compared with that one?  Every rule here needs a baseline."""

from __future__ import annotations

from annotate.rule import Rule

RULES: tuple[Rule, ...] = ()
