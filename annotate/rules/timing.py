"""Is the timer right?  Synchronisation, streams, overhead, launches: what stands between a kernel and its time."""

from __future__ import annotations

from annotate.rule import Rule

RULES: tuple[Rule, ...] = ()
