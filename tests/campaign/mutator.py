"""Mutators: each puts one hazard into a clean window, sized as a multiple of its rule's limit."""

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
# Returns the evidence with the hazard, or None if this window cannot have the hazard (a cap's hazard in a copy).
Inject: TypeAlias = Callable[[Evidence, float, np.random.Generator], Evidence | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutator:
    """A hazard to inject into a window, and the condition under which it counts as caught.

    ``limit`` names the quantity that the multiple multiplies, and is empty for a hazard without a size.  ``caught`` is the least severity
    that counts; with ``unobserved``, an unobserved answer counts too, for a rule that never flags.
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
        """Return True if the rule only adds a label to the number; any finding then counts as caught."""
        return rule_named(self.rule).kind is RuleKind.LABEL

    @property
    def multiples(self) -> tuple[float, ...]:
        return MULTIPLES if self.limit else (2.0,)


@cache
def rule_named(name: str) -> Rule:
    return next(rule for rule in RULES if rule.name == name)


def limit_of(rule: str, name: str) -> float:
    """Return a rule's current limit, so that a mutator follows the rule."""
    return rule_named(rule).limits[name].default
