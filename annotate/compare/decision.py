"""The result of comparing two variants, as a record, as text and as plain data.

A ratio is the second variant's time over the first's: below 1 the second is faster.  ``annotate.compare.quad_decision``
decides on interleaved blocks, ``annotate.compare.two_runs`` on runs that were recorded one after the other.
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from html import escape
from typing import Any

from annotate.amount_words import duration_text
from annotate.derived.launch_share import LaunchShare
from annotate.output.markup import marked
from annotate.output.report import plain
from annotate.stats.intervals import Interval

# The noise floor of a GPU that `gpuwatch selftest` has not measured (docs/COMPARE.md).
FLOOR_RATIO = 0.003
# The tolerance of comparisons: SAME needs both intervals within it (two one-sided tests, Schuirmann 1987).
MARGIN_RATIO = 0.005


class Decision(StrEnum):
    """The decision on a variant against the reference: FASTER, SLOWER, SAME, INCONCLUSIVE or INCOMPARABLE.

    SAME: the difference lies inside the tolerance.  INCONCLUSIVE: the intervals do not decide, or median and mean disagree.
    INCOMPARABLE: the two do not compute the same, ran under conditions that differ, or one of the runs was rejected.

    Raises ValueError: when ``Decision(name)`` names no decision.

    Example:
        >>> from annotate.compare.decision import Decision
        >>> Decision("same") is Decision.SAME
        True
    """

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that both variants should share, and the value for each variant."""

    name: str
    a: str
    b: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OneClock:
    """The numbers of two machines at one clock, and the parts of their interval.

    For the ratio of two models, the two clocks may differ.  ``card_spread_ratio`` is None if no spread is given or on record.
    """

    a_mhz: float
    b_mhz: float
    a_s: float
    b_s: float
    a_repeatability_ratio: float | None
    b_repeatability_ratio: float | None
    a_bound_ratio: float | None  # bound on disturbances in a's window
    b_bound_ratio: float | None
    card_spread_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of comparing one pair of variants.  A ratio is b's time over a's: below 1, b is faster.

    Times by the host's clock do not show the GPU's clock.  Then ``ratio`` compares alternating blocks, and ``own_ratio``
    compares each variant alone.

    Raises nothing.

    Attributes:
        a: Name of the reference.
        b: Name of the other variant.
        decision: Decision on b against a.
        ratio: Interval of the median, from interleaved blocks, from times corrected to one clock, or from times as measured.
        own_ratio: Interval of the median with each variant at the clock that its power allows; None if not measured.
        mean_ratio: Interval of the mean.
        trimmed_mean_ratio: Interval of the mean without a tenth of the quads at each end.
        mean_used: Mean that decided together with the median: plain or trimmed.
        slower_blocks_ratio: Share of the pairs of blocks in which b is slower than in the usual pairs.
        faster_blocks_ratio: Share of the pairs of blocks in which b is faster than in the usual pairs.
        a_s: Median time of a, in seconds per call.
        b_s: Median time of b, in seconds per call.
        one_clock: Numbers of two machines at one clock; None for other comparisons.
        a_launch: GPU's share of a's time; None if no launches were observed.
        b_launch: GPU's share of b's time; None if no launches were observed.
        design: interleaved or sequential.
        timer: Timer of interleaved blocks: events or host.
        cache: State of the L2 cache at each call, cold or warm; None if not controlled.
        pairs_count: Number of pairs of blocks.
        needed_pairs_count: Number of further pairs that may decide an inconclusive comparison; None if more pairs do not help.
        floor_ratio: Smallest difference that counts, a ratio: the noise floor of the GPU or of sequential runs.
        margin_ratio: Largest difference of SAME: the 90 % intervals of median and mean must lie within it, a ratio.
        conditions: Conditions that both variants should share, with the values of each.
        reasons: Sentences that explain the decision.
        simulated: True if no real GPU was measured.

    Example:
        >>> from annotate.compare.decision import Comparison, Decision
        >>> Comparison(a="old", b="new", decision=Decision.INCONCLUSIVE).within_noise
        True
    """

    a: str
    b: str
    decision: Decision
    ratio: Interval | None = None
    own_ratio: Interval | None = None
    mean_ratio: Interval | None = None
    trimmed_mean_ratio: Interval | None = None
    mean_used: str | None = None
    slower_blocks_ratio: float | None = None
    faster_blocks_ratio: float | None = None
    a_s: float | None = None
    b_s: float | None = None
    one_clock: OneClock | None = None
    a_launch: LaunchShare | None = None
    b_launch: LaunchShare | None = None
    design: str = "interleaved"
    timer: str = ""
    cache: str | None = None
    pairs_count: int = 0
    needed_pairs_count: int | None = None
    floor_ratio: float = FLOOR_RATIO
    margin_ratio: float = MARGIN_RATIO
    conditions: tuple[Condition, ...] = ()
    reasons: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def within_noise(self) -> bool:
        """Return True if the decision is neither FASTER nor SLOWER; a difference is then printed with a ``?``."""
        return self.decision not in (Decision.FASTER, Decision.SLOWER)

    @property
    def change_ratio(self) -> float | None:
        """Return the difference of b's time as a ratio of a's, such as -0.1 for a tenth less; None without a ratio."""
        return None if self.ratio is None else self.ratio.centre - 1.0

    @property
    def reference_ratio(self) -> Interval | None:
        """Return b's speed as a ratio of a's, such as 0.687 for 68.7 % of the reference; None without a ratio."""
        found = self.ratio
        if found is None:
            return None
        low, high = (1.0 / edge if edge else float("inf") for edge in (found.high, found.low))
        return Interval(1.0 / found.centre, low, high, found.confidence, found.blocks_count)

    @property
    def one_clock_words(self) -> str:
        """Return the numbers of two machines at one clock as text; empty for other comparisons."""
        at = self.one_clock
        if at is None:
            return ""
        sides = (
            (self.a, at.a_s, at.a_mhz, at.a_repeatability_ratio),
            (self.b, at.b_s, at.b_mhz, at.b_repeatability_ratio),
        )
        numbers = (f"{name} {duration_text(s)} at {mhz:.0f} MHz ±{_percent(ratio)}" for name, s, mhz, ratio in sides)
        limits = f"disturbances at most {_percent(at.a_bound_ratio)} and {_percent(at.b_bound_ratio)}"
        return f"{', '.join(numbers)}; {limits}, between cards {_percent(at.card_spread_ratio)}"

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(text(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON.

        Raises nothing.

        Example:
            >>> Comparison(a="old", b="new", decision=Decision.SAME).to_dict()["decision"]
            'same'
        """
        return {
            "a": self.a,
            "b": self.b,
            "decision": self.decision.value,
            "ratio": _plain(self.ratio),
            "own_ratio": _plain(self.own_ratio),
            "mean_ratio": _plain(self.mean_ratio),
            "trimmed_mean_ratio": _plain(self.trimmed_mean_ratio),
            "mean_used": self.mean_used,
            "reference_ratio": _plain(self.reference_ratio),
            "slower_blocks_ratio": self.slower_blocks_ratio,
            "faster_blocks_ratio": self.faster_blocks_ratio,
            "a_s": self.a_s,
            "b_s": self.b_s,
            "one_clock": None if self.one_clock is None else asdict(self.one_clock),
            "a_launch_share": None if self.a_launch is None else self.a_launch.to_dict(),
            "b_launch_share": None if self.b_launch is None else self.b_launch.to_dict(),
            "within_noise": self.within_noise,
            "design": self.design,
            "cache": self.cache,
            "pairs_count": self.pairs_count,
            "needed_pairs_count": self.needed_pairs_count,
            "floor_ratio": self.floor_ratio,
            "margin_ratio": self.margin_ratio,
            "conditions": [{"name": c.name, "a": c.a, "b": c.b, "differs": c.differs} for c in self.conditions],
            "reasons": list(self.reasons),
            "simulated": self.simulated,
        }


def change_text(interval: Interval | None, *, uncertain: bool) -> str:
    """Return a difference of times as text: ``-0.52 % [-0.61, -0.43]``, with ``not significant`` for an uncertain difference."""
    if interval is None:
        return "not measured"
    # Adding zero removes the sign of a negative zero.
    centre, low, high = (round((each - 1.0) * 100, 2) + 0.0 for each in (interval.centre, interval.low, interval.high))
    return f"{centre:+.2f} % [{low:+.2f}, {high:+.2f}]" + (", not significant" if uncertain else "")


def text(comparison: Comparison) -> str:
    """Return the result in a few lines; conditions that differ come before any time.

    Names and conditions come from other programs, so control characters are escaped.
    """
    simulated = "SIMULATED  " if comparison.simulated else ""
    by_host = comparison.timer == "host"
    lines = [f"{comparison.decision.value.upper()}  {simulated}{comparison.b} against {comparison.a}"]
    differing = [condition for condition in comparison.conditions if condition.differs]
    lines += [f"  differs: {condition.name}: {condition.a} -> {condition.b}" for condition in differing]
    if comparison.ratio is not None:
        how = f"{comparison.pairs_count} pairs" if comparison.pairs_count else comparison.design
        change = change_text(comparison.ratio, uncertain=comparison.within_noise)
        lines.append(f"  time {_where(comparison)}: {change}  (median, {how}, {100 * comparison.ratio.confidence:.3g} %)")
    if comparison.one_clock is not None:
        lines.append(f"  {comparison.one_clock_words}")
        if comparison.mean_ratio is not None:
            lines.append(f"  mean at one clock: {change_text(comparison.mean_ratio, uncertain=False)}")
    elif comparison.mean_ratio is not None and comparison.trimmed_mean_ratio is not None:
        means = [change_text(each, uncertain=False) for each in (comparison.mean_ratio, comparison.trimmed_mean_ratio)]
        decides = " (decides: tails are heavy)" if comparison.mean_used == "trimmed" else ""
        lines.append(f"  mean: {means[0]}, trimmed mean: {means[1]}{decides}")
    if comparison.own_ratio is not None:
        spans_none = comparison.own_ratio.low <= 1.0 <= comparison.own_ratio.high
        own = "alone" if by_host else "at its own clock"
        lines.append(f"  each {own}: {change_text(comparison.own_ratio, uncertain=spans_none)}")
    if comparison.a_s is not None and comparison.b_s is not None:
        measured = "as measured: " if comparison.one_clock is not None else ""
        lines.append(
            f"  {measured}{comparison.a} {duration_text(comparison.a_s)}, {comparison.b} {duration_text(comparison.b_s)}"
        )
    launches = ((comparison.a, comparison.a_launch), (comparison.b, comparison.b_launch))
    lines += [f"  {name}: {share}" for name, share in launches if share is not None]
    if comparison.cache is not None:
        lines.append(f"  L2 cache: {comparison.cache}")
    lines += [f"  {reason}" for reason in comparison.reasons]
    return "\n".join(plain(line) for line in lines)


def _where(comparison: Comparison) -> str:
    at = comparison.one_clock
    if at is not None and at.a_mhz != at.b_mhz:
        return "each at its clock"
    return (
        "as it ran" if comparison.design == "sequential" else "in turns" if comparison.timer == "host" else "at the same clock"
    )


def markdown(comparison: Comparison) -> str:
    """Return the result as Markdown for a pull request: a line, a table of differences, and the rest as a list."""
    simulated = " **SIMULATED**" if comparison.simulated else ""
    change = f": {change_text(comparison.ratio, uncertain=comparison.within_noise)}" if comparison.ratio is not None else ""
    head = f"{marked(plain(comparison.b))} against {marked(plain(comparison.a))}{marked(change)}"
    lines = [f"**{comparison.decision.value.upper()}**{simulated} {head}"]
    differing = [condition for condition in comparison.conditions if condition.differs]
    if differing:
        lines += ["", f"| Differs | {marked(plain(comparison.a))} | {marked(plain(comparison.b))} |", "|---|---|---|"]
        lines += ["| " + " | ".join(marked(plain(word)) for word in (each.name, each.a, each.b)) + " |" for each in differing]
    rest = text(replace(comparison, conditions=())).split("\n")[1:]
    return "\n".join([*lines, *([""] if rest else []), *(f"- {marked(line.strip())}" for line in rest)]) + "\n"


def _percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{100 * ratio:.2f} %"


def _plain(interval: Interval | None) -> dict[str, float] | None:
    names = {"ratio": "centre", "low_ratio": "low", "high_ratio": "high", "confidence_ratio": "confidence"}
    return None if interval is None else {name: getattr(interval, field) for name, field in names.items()}
