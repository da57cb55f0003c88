"""A mutator puts one hazard into a clean window, so large as a multiple of its rule's limit says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from annotate.claims import Claim
from annotate.evidence import Evidence
from annotate.rule import Rule, RuleKind, Severity
from annotate.rules import RULES

MULTIPLES = (1.0, 1.5, 2.0, 3.0)
# The evidence with the hazard; None where this window cannot have it (a cap's hazard in a copy).
Inject: TypeAlias = Callable[[Evidence, float, np.random.Generator], Evidence | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutator:
    """What is put into a window, and when it counts as caught.

    ``limit`` says in words what the multiple multiplies; empty: the hazard is there or not, and has no size.  ``caught`` is
    the least severity that counts; with ``unobserved`` a rule that only ever makes windows unproven is right to say so.
    """

    rule: str
    inject: Inject
    limit: str = ""
    variant: str = ""
    claim: Claim = Claim.SUSTAINED
    caught: Severity = Severity.FLAG
    unobserved: bool = False

    @property
    def name(self) -> str:
        return f"{self.rule}: {self.variant}" if self.variant else self.rule

    @property
    def is_label(self) -> bool:
        """Whether its rule only ever says what must be quoted beside the number: then being found is all there is to ask."""
        return rule_named(self.rule).kind is RuleKind.LABEL

    @property
    def multiples(self) -> tuple[float, ...]:
        return MULTIPLES if self.limit else (2.0,)


@cache
def rule_named(name: str) -> Rule:
    return next(rule for rule in RULES if rule.name == name)


def limit_of(rule: str, name: str) -> float:
    """A limit as it stands, so that a mutator follows it."""
    return rule_named(rule).limits[name].default
