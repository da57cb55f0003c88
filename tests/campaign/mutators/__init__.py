"""Every mutator, and the rules that have none, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from tests.campaign.mutator import Mutator
from tests.campaign.mutators import clocks, contention, coverage, identity, power, steadiness, thermal

MUTATORS: tuple[Mutator, ...] = (
    *coverage.MUTATORS,
    *thermal.MUTATORS,
    *power.MUTATORS,
    *clocks.MUTATORS,
    *steadiness.MUTATORS,
    *contention.MUTATORS,
    *identity.MUTATORS,
)

# Why no hazard is injected for a rule; its false alarms are counted all the same.
NOT_MEASURED: Mapping[str, str] = {}
