"""Who holds the clock, and is it what the driver says?  Locks, other controllers, hidden slow states."""

from __future__ import annotations

from annotate.rule import Rule

RULES: tuple[Rule, ...] = ()
