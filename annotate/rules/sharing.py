"""Does anything share the GPU by design, or stand far from it?  Partitions, displays, the process's own other work, sockets and links."""

from __future__ import annotations

from annotate.rule import Rule

RULES: tuple[Rule, ...] = ()
