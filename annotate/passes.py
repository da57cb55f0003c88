"""The three passes of the judge, and the rules by which a later pass raises or replaces the bounds of an earlier one."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

from annotate.budget import Bound, Group, Number, Replaces

_Key: TypeAlias = tuple[str, Number, Group]

# Groups in which several rules report one bias, each for another shape: a replacement by one rule holds for all.
_NAMED_BY_SHAPE = frozenset({Group.CLOCK})


class AskingPass(StrEnum):
    """The passes of the judge, in order; each pass hands rules and proofs more of the evidence."""

    WITNESSED = "witnessed"  # no times, and no declared facts except those of the claim
    TIMED = "timed"  # also times, stamps and declared other work
    DECLARED = "declared"  # all evidence


def merge_passes(passes: Mapping[AskingPass, Iterable[Bound]]) -> tuple[Bound, ...]:
    """Merge the causes of all passes into one bound per rule, number and group, at the largest size.

    A bound of the timed pass may replace the unresolved part of a witnessed bound.  The declared pass replaces nothing.
    """
    merged: dict[_Key, Bound] = {}
    for asking in AskingPass:
        each = _one_each(passes.get(asking, ()))
        if asking is AskingPass.TIMED:
            merged = _resolved(merged, each.values())
        for key, found in each.items():
            earlier = merged.get(key)
            replaces = found.replaces if asking is AskingPass.TIMED else Replaces.NOTHING
            merged[key] = found if earlier is None else _over(earlier, found, replaces)
    return tuple(merged.values())


def _resolved(earlier: Mapping[_Key, Bound], timed: Iterable[Bound]) -> dict[_Key, Bound]:
    """Return the earlier causes, cut to the seen part if a timed bound of the same bias resolves the rest."""
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
    """Return one bound per rule, number and group, with the largest size, estimate and seen part of several."""
    each: dict[_Key, Bound] = {}
    for bound in found:
        key = (bound.rule, bound.number, bound.group)
        each[key] = _over(each[key], bound, Replaces.NOTHING) if key in each else bound
    return each


def _over(earlier: Bound, later: Bound, replaces: Replaces) -> Bound:
    """Merge two bounds at the larger size; under ``unresolved`` only the seen part of the earlier bound counts."""
    if earlier is later:
        return later
    if replaces is Replaces.UNRESOLVED:
        earlier = replace(earlier, ratio=earlier.seen_ratio)
    larger = max(later, earlier, key=lambda bound: bound.size_ratio)  # on a tie the later bound, which has more evidence
    farther = max(later, earlier, key=_rejecting)
    return replace(
        larger,
        estimate=farther.estimate or larger.estimate,
        can_reject=farther.can_reject if farther.estimate else larger.can_reject,
        seen_ratio=_larger(earlier.seen_ratio, later.seen_ratio),
        span_ns=larger.span_ns or earlier.span_ns or later.span_ns,
    )


def _rejecting(bound: Bound) -> tuple[bool, float]:
    """Return a sort key: estimates that can reject above all others, then by the distance of the nearer end from zero."""
    nearer_ratio = bound.estimate.nearer_ratio if bound.estimate else 0.0
    return bound.can_reject and nearer_ratio > 0.0, nearer_ratio


def _larger(a_ratio: float | None, b_ratio: float | None) -> float | None:
    """Return the larger amount; None means unbounded, so it is the largest."""
    return None if a_ratio is None or b_ratio is None else max(a_ratio, b_ratio)
