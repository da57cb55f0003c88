"""The decision on interleaved variants from the times of their quads: median and mean must agree."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from annotate.compare.block_ratios import block_ratios
from annotate.compare.decision import FLOOR_RATIO, MARGIN_RATIO, Comparison, Decision
from annotate.compare.quads import Quads
from annotate.stats.intervals import Interval

CONFIDENCE_RATIO = 0.95
_EQUIVALENCE_RATIO = 0.9  # two one-sided tests at 5 %
# More pairs do not help if intervals must become this many times narrower: a million times the pairs would take years.
_FARTHEST_WAY = 1_000.0
# Fifteen quads: fewer show too little of the correlation between quads.
LEAST_PAIRS_COUNT = 30


@dataclass(frozen=True, slots=True)
class Levels:
    """The interval of one statistic at two levels: ``wide`` decides on a difference, ``narrow`` (90 %) on equality."""

    wide: Interval
    narrow: Interval


def decide(a: str, b: str, quads: Quads, *, floor_ratio: float = FLOOR_RATIO, margin_ratio: float = MARGIN_RATIO) -> Comparison:
    """Decide on ``b`` against ``a`` from the times of the quads.

    FASTER and SLOWER: the median's interval excludes 1, the median exceeds the floor, also without outlying pairs, and the
    mean has the same sign.  SAME: no such median, and both 90 % intervals lie inside the margin.  Else INCONCLUSIVE.
    """
    usable = quads.usable
    about = Comparison(a=a, b=b, decision=Decision.INCONCLUSIVE, floor_ratio=floor_ratio, margin_ratio=margin_ratio)
    if len(usable):
        about = replace(about, a_s=float(np.median(usable.a_s)), b_s=float(np.median(usable.b_s)))
    return decide_at(about, usable, CONFIDENCE_RATIO)


def decide_at(about: Comparison, quads: Quads, confidence: float) -> Comparison:
    """Decide at this confidence, with the floor and the margin of the comparison."""
    pairs_count = 2 * len(quads)
    about = replace(about, decision=Decision.INCONCLUSIVE, pairs_count=pairs_count)
    if pairs_count < LEAST_PAIRS_COUNT:
        more = LEAST_PAIRS_COUNT - pairs_count
        return replace(about, needed_pairs_count=more, reasons=(f"only {pairs_count} pairs ran: {more} more are needed",))
    ratios = block_ratios(quads, least_ratio=about.margin_ratio)
    median, mean = (Levels(each(confidence), each(_EQUIVALENCE_RATIO)) for each in (ratios.median, ratios.mean.interval))
    decision = decide_levels(median, mean, floor_ratio=about.floor_ratio, margin_ratio=about.margin_ratio)
    is_difference = decision in (Decision.FASTER, Decision.SLOWER)
    if is_difference and not _is_beyond(ratios.usual_median(confidence), about.floor_ratio, decision):
        decision = Decision.INCONCLUSIVE  # the outlying blocks alone make the difference
    about = replace(
        about,
        decision=decision,
        ratio=median.wide,
        mean_ratio=ratios.plain_mean.interval(confidence),
        trimmed_mean_ratio=ratios.trimmed_mean.interval(confidence),
        mean_used="trimmed" if ratios.is_trimmed else "plain",
        slower_blocks_ratio=ratios.slower_ratio,
        faster_blocks_ratio=ratios.faster_ratio,
    )
    if decision is not Decision.INCONCLUSIVE:
        return about
    needed, why = _explain_doubt(about, median, mean)
    return replace(about, needed_pairs_count=needed, reasons=(why,))


def decide_levels(median: Levels, mean: Levels, *, floor_ratio: float, margin_ratio: float) -> Decision:
    """Return the decision by the intervals of median and mean."""
    change = math.log(median.wide.centre)
    if abs(change) > math.log1p(floor_ratio) and median.wide.excludes(1.0):
        # A median and a mean of different signs show a mixture of blocks, not a difference.
        has_same_sign = change * math.log(mean.wide.centre) > 0
        return (Decision.FASTER if change < 0 else Decision.SLOWER) if has_same_sign else Decision.INCONCLUSIVE
    if all(each.narrow.within(1.0 - margin_ratio, 1.0 + margin_ratio) for each in (median, mean)):
        return Decision.SAME
    return Decision.INCONCLUSIVE


def _is_beyond(usual: Interval, floor_ratio: float, decision: Decision) -> bool:
    change = math.log(usual.centre) * (-1 if decision is Decision.FASTER else 1)
    return change > math.log1p(floor_ratio) and usual.excludes(1.0)


def correct_for_many(comparisons: Sequence[Comparison], quads: Mapping[str, Quads]) -> tuple[Comparison, ...]:
    """Apply Holm's correction to several variants against one: 5 % over their count is the level of the clearest difference.

    ``quads`` are keyed by the name of the second variant.  A difference that fails at its level becomes INCONCLUSIVE, and so
    do all that are less clear.
    """
    if len(comparisons) < 2:
        return tuple(comparisons)
    out = {each.b: each for each in comparisons}
    found = [each for each in comparisons if not each.within_noise and each.ratio is not None]
    ordered = sorted(found, key=_clearness, reverse=True)
    for rank, each in enumerate(ordered):
        level = 1.0 - (1.0 - CONFIDENCE_RATIO) / (len(comparisons) - rank)
        again = decide_at(each, quads[each.b].usable, level)
        if again.within_noise:
            reason = f"a difference alone, but not among {len(comparisons)} comparisons (Holm)"
            for weaker in ordered[rank:]:
                out[weaker.b] = replace(weaker, decision=Decision.INCONCLUSIVE, reasons=(*weaker.reasons, reason))
            break
        out[each.b] = again
    return tuple(out[each.b] for each in comparisons)


def _clearness(comparison: Comparison) -> float:
    interval = comparison.ratio
    if interval is None:
        return 0.0
    return abs(math.log(interval.centre)) / max(1e-12, math.log(interval.high / interval.low))


def _explain_doubt(about: Comparison, median: Levels, mean: Levels) -> tuple[int | None, str]:
    """Return the number of further pairs that may decide (None: no number helps), and the reason for the doubt."""
    centre = median.wide.centre
    is_mixture = mean.wide.excludes(centre) and abs(math.log(mean.wide.centre / centre)) > math.log1p(about.margin_ratio)
    if is_mixture:
        slower, faster = about.slower_blocks_ratio or 0.0, about.faster_blocks_ratio or 0.0
        share, how = max((slower, "slower"), (faster, "faster"))
        what = f"{about.b} is {how} in {_percent(share)} of its blocks" if share else "blocks differ among themselves"
        return None, f"{what}: median {100 * (centre - 1):+.2f} %, mean {100 * (mean.wide.centre - 1):+.2f} %"
    needed = _needed_pairs_count(about, median, mean)
    if needed is not None:
        return needed, f"{needed} more pairs may decide"
    if abs(math.log(mean.wide.centre)) > math.log1p(about.margin_ratio) > abs(math.log(centre)):
        kind = "trimmed mean" if about.mean_used == "trimmed" else "mean"
        apart = f"the {kind} differs by {100 * (mean.wide.centre - 1):+.2f} %, the median by {100 * (centre - 1):+.2f} %"
        return None, f"more pairs do not help: {apart}, and the margin ({about.margin_ratio:.2%}) lies between"
    limits = f"the floor ({about.floor_ratio:.2%}) or the margin ({about.margin_ratio:.2%})"
    return None, f"more pairs do not help: the difference is too near {limits}"


def _percent(share_ratio: float) -> str:
    return f"{100 * share_ratio:.0f} %" if share_ratio >= 0.0095 else f"{100 * share_ratio:.1f} %"


def _needed_pairs_count(about: Comparison, median: Levels, mean: Levels) -> int | None:
    """Return the number of further pairs that narrow the intervals enough if the estimates stay the same, or None.

    The width of an interval shrinks with the square root of the number of pairs.
    """
    change = math.log(median.wide.centre)
    ways = []
    if abs(change) > math.log1p(about.floor_ratio) and change * math.log(mean.wide.centre) > 0:
        ways.append(_half_width(median.wide) / abs(change))
    room = [about.margin_ratio - abs(math.log(each.narrow.centre)) for each in (median, mean)]
    if min(room) > 0:
        ways.append(max(_half_width(each.narrow) / left for each, left in zip((median, mean), room, strict=True)))
    needed = [math.ceil(about.pairs_count * (way**2 - 1)) for way in ways if 1.0 < way < _FARTHEST_WAY]
    return max(1, min(needed)) if needed else None


def _half_width(interval: Interval) -> float:
    if not interval.low:
        return math.inf
    return max(math.log(interval.centre / interval.low), math.log(interval.high / interval.centre))
