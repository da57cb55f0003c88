"""The judge of comparisons: the faster of two variants, by how much, and how surely.

A ratio is the second variant's time over the first's: below 1 the second is faster.  Pairs are adjacent blocks of an
interleaved run (ABBA); ``annotate.compare.two_runs`` compares runs that were recorded one after the other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from html import escape
from typing import Any

import numpy as np

from annotate.evidence import Values
from annotate.output.report import plain
from annotate.stats.intervals import Interval, ratio_interval

# Until this GPU was asked (`gpuwatch selftest`): identical GEMMs on different buffers of an H200 differed by 0.26 %.
FLOOR_RATIO = 0.003
# Differences inside this are called none (two one-sided tests, Schuirmann 1987).
MARGIN_RATIO = 0.005
CONFIDENCE_RATIO = 0.95
# Below six pairs no order statistic reaches 95 %; thirty are what the design asks for.
LEAST_PAIRS_COUNT = 30


class Decision(StrEnum):
    """The answers on the second variant against the first."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something both variants should share, and what each of them had."""

    name: str
    a: str
    b: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The answer on one pair of variants.

    ``ratio`` is at the same clock, from interleaved blocks or corrected times; ``own_ratio`` is each variant at the clock its
    own power allows.  Where the host's clock took the times nothing is known of a GPU's: then they are of blocks in turns,
    and of each variant alone.  ``needed_pairs_count`` is how many more pairs an inconclusive answer wants; None: none help.
    """

    a: str
    b: str
    decision: Decision
    ratio: Interval | None = None
    own_ratio: Interval | None = None
    a_s: float | None = None
    b_s: float | None = None
    design: str = "interleaved"
    timer: str = ""  # what took the times of interleaved blocks: events or host
    pairs_count: int = 0
    needed_pairs_count: int | None = None
    floor_ratio: float = FLOOR_RATIO
    margin_ratio: float = MARGIN_RATIO
    conditions: tuple[Condition, ...] = ()
    reasons: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def within_noise(self) -> bool:
        """Return whether a difference is printed with a ``?``: it is there, and may be nothing."""
        return self.decision not in (Decision.FASTER, Decision.SLOWER)

    @property
    def change_ratio(self) -> float | None:
        """Return by how much the second variant's time differs from the first's: -0.1 takes a tenth less."""
        return None if self.ratio is None else self.ratio.centre - 1.0

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(text(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "a": self.a,
            "b": self.b,
            "decision": self.decision.value,
            "ratio": _plain(self.ratio),
            "own_ratio": _plain(self.own_ratio),
            "a_s": self.a_s,
            "b_s": self.b_s,
            "within_noise": self.within_noise,
            "design": self.design,
            "pairs_count": self.pairs_count,
            "needed_pairs_count": self.needed_pairs_count,
            "floor_ratio": self.floor_ratio,
            "margin_ratio": self.margin_ratio,
            "conditions": [{"name": c.name, "a": c.a, "b": c.b, "differs": c.differs} for c in self.conditions],
            "reasons": list(self.reasons),
            "simulated": self.simulated,
        }


def decide(
    a: str,
    b: str,
    log_ratios: Values,
    *,
    floor_ratio: float = FLOOR_RATIO,
    margin_ratio: float = MARGIN_RATIO,
    a_s: float | None = None,
    b_s: float | None = None,
) -> Comparison:
    """The decision from the log ratios (b over a) of adjacent blocks, in the order they ran.

    FASTER and SLOWER when the interval excludes no difference and the estimate exceeds the floor; SAME when the 90 %
    interval lies inside the margin; else INCONCLUSIVE with the pairs it still needs.
    """
    about = Comparison(
        a=a,
        b=b,
        decision=Decision.INCONCLUSIVE,
        floor_ratio=floor_ratio,
        margin_ratio=margin_ratio,
        a_s=a_s,
        b_s=b_s,
    )
    return _decided(about, log_ratios, CONFIDENCE_RATIO)


def _decided(about: Comparison, log_ratios: Values, confidence: float) -> Comparison:
    """Decide at this confidence, within the floor and the margin that the comparison names."""
    pairs = log_ratios[np.isfinite(log_ratios)]
    floor_ratio, margin_ratio = about.floor_ratio, about.margin_ratio
    about = replace(about, decision=Decision.INCONCLUSIVE, pairs_count=len(pairs))
    if len(pairs) < LEAST_PAIRS_COUNT:
        more = LEAST_PAIRS_COUNT - len(pairs)
        return replace(about, needed_pairs_count=more, reasons=(f"only {len(pairs)} pairs ran: {more} more are needed",))
    wide, narrow = (as_ratio(ratio_interval(pairs, confidence=level)) for level in (confidence, 0.9))
    decision = of_intervals(wide, narrow, floor_ratio=floor_ratio, margin_ratio=margin_ratio)
    about = replace(about, decision=decision, ratio=wide)
    if decision is not Decision.INCONCLUSIVE:
        return about
    needed = _needed_pairs_count(wide, narrow, len(pairs), floor_ratio, margin_ratio)
    why = (
        f"{needed} more pairs may tell"
        if needed is not None
        else f"more pairs do not help: the difference is too near the floor ({floor_ratio:.2%}) or the "
        f"margin ({margin_ratio:.2%})"
    )
    return replace(about, needed_pairs_count=needed, reasons=(why,))


def as_ratio(interval: Interval) -> Interval:
    """An interval of log ratios as one of ratios; what is beyond every ratio stays infinite."""
    with np.errstate(over="ignore"):
        centre, low, high = (float(np.exp(value)) for value in (interval.centre, interval.low, interval.high))
    return replace(interval, centre=centre, low=low, high=high)


def of_intervals(wide: Interval, narrow: Interval, *, floor_ratio: float, margin_ratio: float) -> Decision:
    """The rule itself: ``wide`` must exclude 1 for a difference, ``narrow`` (90 %) lie inside the margin for none."""
    change = math.log(wide.centre)
    if abs(change) > math.log1p(floor_ratio) and wide.excludes(1.0):
        return Decision.FASTER if change < 0 else Decision.SLOWER
    if narrow.within(1.0 - margin_ratio, 1.0 + margin_ratio):
        return Decision.SAME
    return Decision.INCONCLUSIVE


def corrected(comparisons: Sequence[Comparison], log_ratios: Mapping[str, Values]) -> tuple[Comparison, ...]:
    """Several variants against one, with Holm's correction: the clearest difference is asked at 5 % over their number.

    ``log_ratios`` by the name of the second variant.  A difference that does not stand at its level is no longer one, nor is
    any that is less clear.
    """
    if len(comparisons) < 2:
        return tuple(comparisons)
    out = {each.b: each for each in comparisons}
    found = [each for each in comparisons if not each.within_noise and each.ratio is not None]
    for rank, each in enumerate(sorted(found, key=_clearness, reverse=True)):
        level = 1.0 - (1.0 - CONFIDENCE_RATIO) / (len(comparisons) - rank)
        again = _decided(each, log_ratios[each.b], level)
        if again.within_noise:
            for weaker in sorted(found, key=_clearness, reverse=True)[rank:]:
                reason = f"a difference alone, but not among {len(comparisons)} comparisons (Holm)"
                out[weaker.b] = replace(weaker, decision=Decision.INCONCLUSIVE, reasons=(*weaker.reasons, reason))
            break
        out[each.b] = replace(each, ratio=again.ratio)
    return tuple(out[each.b] for each in comparisons)


def _clearness(comparison: Comparison) -> float:
    interval = comparison.ratio
    if interval is None:
        return 0.0
    return abs(math.log(interval.centre)) / max(1e-12, math.log(interval.high / interval.low))


def _needed_pairs_count(wide: Interval, narrow: Interval, count: int, floor_ratio: float, margin_ratio: float) -> int | None:
    """Return how many more pairs narrow the interval enough, if the estimate stays; widths shrink by the root."""
    change = abs(math.log(wide.centre))
    ways = []
    if change > math.log1p(floor_ratio):
        ways.append(_half_width(wide) / change)
    if change < margin_ratio:
        ways.append(_half_width(narrow) / (margin_ratio - change))
    needed = [math.ceil(count * way**2) - count for way in ways if way > 1.0]
    least = min(needed, default=None)
    # Answers of more pairs than this are years away: say that the question is too fine instead.
    return None if least is None or least > 1_000_000 else max(1, least)


def _half_width(interval: Interval) -> float:
    return max(math.log(interval.centre / interval.low), math.log(interval.high / interval.centre))


def change_text(interval: Interval | None, *, uncertain: bool) -> str:
    """A difference of times as people read it: ``-0.52 % [-0.61, -0.43]``, with ``?`` where it may be nothing."""
    if interval is None:
        return "not measured"
    low, high = (interval.low - 1.0) * 100, (interval.high - 1.0) * 100
    return f"{(interval.centre - 1.0) * 100:+.2f} % [{low:+.2f}, {high:+.2f}]" + (" ?" if uncertain else "")


def text(comparison: Comparison) -> str:
    """The answer in a few lines; what the variants do not share comes before any time.

    Names and conditions are what any program declared: none of it steers a terminal.
    """
    simulated = "SIMULATED  " if comparison.simulated else ""
    by_host = comparison.timer == "host"
    lines = [f"{comparison.decision.value.upper()}  {simulated}{comparison.b} against {comparison.a}"]
    differing = [condition for condition in comparison.conditions if condition.differs]
    lines += [f"  differs: {condition.name}: {condition.a} -> {condition.b}" for condition in differing]
    if comparison.ratio is not None:
        how = f"{comparison.pairs_count} pairs" if comparison.pairs_count else comparison.design
        change = change_text(comparison.ratio, uncertain=comparison.within_noise)
        where = "as it ran" if comparison.design == "sequential" else "in turns" if by_host else "at the same clock"
        lines.append(f"  time {where}: {change}  ({how}, {comparison.ratio.confidence:.0%})")
    if comparison.own_ratio is not None:
        spans_none = comparison.own_ratio.low <= 1.0 <= comparison.own_ratio.high
        own = "alone" if by_host else "at its own clock"
        lines.append(f"  each {own}: {change_text(comparison.own_ratio, uncertain=spans_none)}")
    if comparison.a_s is not None and comparison.b_s is not None:
        lines.append(f"  {comparison.a} {duration_text(comparison.a_s)}, {comparison.b} {duration_text(comparison.b_s)}")
    lines += [f"  {reason}" for reason in comparison.reasons]
    return "\n".join(plain(line) for line in lines)


def duration_text(took_s: float) -> str:
    """A duration with four digits and a unit people read."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if took_s >= 0.99995 * scale:  # what rounds to a whole one is one
            return f"{took_s / scale:.4g} {unit}"
    return f"{took_s / 1e-9:.4g} ns"


def _plain(interval: Interval | None) -> dict[str, float] | None:
    names = {"ratio": "centre", "low_ratio": "low", "high_ratio": "high", "confidence_ratio": "confidence"}
    return None if interval is None else {name: getattr(interval, field) for name, field in names.items()}
