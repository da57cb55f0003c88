"""The three passes in which the judge asks: what the measured process declares can only worsen what witnesses saw."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

from annotate.budget import Bound, Group, Number, Replaces

_Key: TypeAlias = tuple[str, Number, Group]

# Groups of one bias that several rules name, each in its own shape: what one of them replaces, it replaces for all.
_NAMED_BY_SHAPE = frozenset({Group.CLOCK})


class AskingPass(StrEnum):
    """The parts of the evidence that the judge hands to rules and proofs, in the order in which it asks."""

    WITNESSED = "witnessed"  # neither times nor declared facts
    TIMED = "timed"  # times, stamps, and work declared beside them
    DECLARED = "declared"  # everything


def merge_passes(passes: Mapping[AskingPass, Iterable[Bound]]) -> tuple[Bound, ...]:
    """Return the causes of all passes, each at its largest size: one for each rule, number and group.

    A bound of the timed pass may say that it replaces what the witnesses left unresolved, or that declared other work
    explains the cause.  The pass with everything replaces nothing.
    """
    merged: dict[_Key, Bound] = {}
    for asking in AskingPass:
        each = _one_each(passes.get(asking, ()))
        if asking is AskingPass.TIMED:
            merged = _resolved(merged, each.values())
        for key, found in each.items():
            earlier = merged.get(key)
            replaces = found.replaces if asking is AskingPass.TIMED else Replaces.NOTHING
            merged[key] = found if earlier is None or replaces is Replaces.EXPLAINED else _over(earlier, found, replaces)
    return tuple(merged.values())


def _resolved(earlier: Mapping[_Key, Bound], timed: Iterable[Bound]) -> dict[_Key, Bound]:
    """Return the earlier causes without what a bound of the same bias, under whichever name, resolves."""
    by_shape = {
        (bound.number, bound.group)
        for bound in timed
        if bound.replaces is Replaces.UNRESOLVED and bound.group in _NAMED_BY_SHAPE
    }
    return {
        key: replace(bound, ratio=bound.seen_ratio) if (bound.number, bound.group) in by_shape else bound
        for key, bound in earlier.items()
    }


def _one_each(found: Iterable[Bound]) -> dict[_Key, Bound]:
    """One bound for each rule, number and group; of several the largest of each part."""
    each: dict[_Key, Bound] = {}
    for bound in found:
        key = (bound.rule, bound.number, bound.group)
        each[key] = _over(each[key], bound, Replaces.NOTHING) if key in each else bound
    return each


def _over(earlier: Bound, later: Bound, replaces: Replaces) -> Bound:
    """The cause at the larger size of both; under ``unresolved`` the earlier one counts as far as it was seen."""
    if replaces is Replaces.UNRESOLVED:
        earlier = replace(earlier, ratio=earlier.seen_ratio)
    larger = max(later, earlier, key=lambda bound: bound.size_ratio)  # of equals the later one, which knows more
    farther = max(later, earlier, key=_rejecting)
    return replace(
        larger,
        estimate=farther.estimate or larger.estimate,
        can_reject=farther.can_reject if farther.estimate else larger.can_reject,
        seen_ratio=_larger(earlier.seen_ratio, later.seen_ratio),
        span_ns=larger.span_ns or earlier.span_ns or later.span_ns,
    )


def _rejecting(bound: Bound) -> tuple[bool, float]:
    """Order by what the estimate can do to a status: one that may reject first, then by its nearer end."""
    nearer_ratio = bound.estimate.nearer_ratio if bound.estimate else 0.0
    return bound.can_reject and nearer_ratio > 0.0, nearer_ratio


def _larger(a_ratio: float | None, b_ratio: float | None) -> float | None:
    """The larger amount; None, which has no bound, is the largest."""
    return None if a_ratio is None or b_ratio is None else max(a_ratio, b_ratio)
