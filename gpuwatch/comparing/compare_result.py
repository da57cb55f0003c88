"""The result of compare(): each variant against the reference, explained."""

import html
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from annotate.compare.decision import Comparison, Decision
from annotate.derived.launch_share import LaunchShare
from annotate.stats.intervals import Interval
from annotate.verdict import Verdict
from gpuwatch.client.window import Window
from gpuwatch.comparing.ladder import ladder_lines
from gpuwatch.comparing.schedule import Interleaved
from gpuwatch.measuring import garbage_collection
from gpuwatch.measuring.measurement import finite
from gpuwatch.measuring.reference import Match

SCHEMA = 1
# Least reported difference between the ratio alone and the ratio in turns; under a power limit the clocks of both differ.
_GAP_RATIO = 0.005
_STARVED_RATIO = 0.5
NOT_COMPARED = "results were not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result of ``compare``: each variant against the reference, and the window around the measurement.

    ``print`` shows the result as a report, and ``compared["b"]`` is the comparison of the variant ``b``.

    Attributes:
        comparisons: One ``annotate.compare.decision.Comparison`` per variant besides the reference.
        matches: By variant, the worst error of its results against the reference's, and the limit, as ratios.
        timer: Name of the blocks' timer, by default events or host.
        window: Window around the measurement; None with ``watch=False``.
        cache: State of the L2 cache before each call, cold or warm; None if the state was not controlled.
        checked_sets_count: Number of sets of inputs on which results were compared.

    Raises KeyError: when ``compared[name]`` names no compared variant.

    Example:
        >>> arms = {"old": lambda: sum(range(2000)), "new": lambda: 1999 * 1000}
        >>> compared = gpuwatch.compare(arms, seconds=0.1, warm_s=0.05, watch=False)
        >>> compared.decision.value
        'faster'
        >>> compared["new"].change_ratio < 0
        True
        >>> print(f"{compared['new'].ratio.centre:.3f}")  # varies
        0.002
    """

    comparisons: tuple[Comparison, ...]
    matches: Mapping[str, Match]
    timer: str
    window: Window | None = None
    cache: str | None = None
    checked_sets_count: int = 0

    def __getitem__(self, name: str) -> Comparison:
        return {comparison.b: comparison for comparison in self.comparisons}[name]

    @property
    def decision(self) -> Decision:
        """Return the decision on the first comparison."""
        return self.comparisons[0].decision

    @property
    def verdict(self) -> Verdict | None:
        """Return the window's verdict, and wait for the judge; None without a window."""
        return None if self.window is None else self.window.verdict

    def __str__(self) -> str:
        lines = [str(comparison) for comparison in self.comparisons]
        lines += ladder_lines(self.comparisons) if len(self.comparisons) > 1 else []
        if self.checked_sets_count:
            sets = "set" if self.checked_sets_count == 1 else "sets"
            lines.append(f"  results compared on {self.checked_sets_count} {sets} of inputs")
        lines.append("  Python's garbage collector was held off while timing")
        verdict = self.verdict
        if verdict is not None:
            lines.append(str(verdict))
            is_power_limited = any(finding.rule == "power-limited" for finding in verdict.hazards)
            if is_power_limited and all(each.own_ratio is None for each in self.comparisons):
                lines.append("  power limits the shared clock: own_steady=True measures each variant at its own clock")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return comparisons and verdict as plain data for JSON; the schema is ``docs/schemas/comparison.json``.

        Raises nothing.

        Example:
            >>> compared.to_dict()["comparisons"][0]["decision"]
            'faster'
        """
        verdict = self.verdict
        return {
            "schema": SCHEMA,
            "design": "interleaved",
            "timer": self.timer,
            "cache": self.cache,
            "collector": garbage_collection.HELD_OFF,
            "checked_sets_count": self.checked_sets_count,
            "comparisons": [
                {name: finite(value) for name, value in comparison.to_dict().items()}
                | {"error_ratio": finite(self.matches[comparison.b].error_ratio) if comparison.b in self.matches else None}
                for comparison in self.comparisons
            ],
            "verdict": None if verdict is None else verdict.to_dict(),
        }

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def explain(comparison: Comparison, ran: Interleaved, own: Interval | None, match: Match | None) -> Comparison:
    """Return the comparison with its reasons and launch shares; a wrong result changes the decision to INCOMPARABLE."""
    reasons = list(comparison.reasons)
    decision, timer = comparison.decision, comparison.timer
    if match is None:
        reasons.append(NOT_COMPARED)
    elif not match.holds:
        decision = Decision.INCOMPARABLE
        wrong = f"its result differs: largest relative error {match.error_ratio:.2g}, {match.limit_ratio:.2g} allowed"
        reasons.insert(0, f"{comparison.b} computes something else: {wrong}")
    shares = {name: ran.launches[name] for name in (comparison.a, comparison.b) if name in ran.launches}
    if timer == "host":
        reasons.append("timed by the host's clock")
    if ran.starved_ratio > _STARVED_RATIO:
        reasons.append("the GPU waited for launches: these are times of the host; capture a graph to compare the kernels")
    elif timer != "host" and own is not None and comparison.ratio is not None:
        reasons += _explain_gap(comparison.ratio, own)
    if ran.starved_ratio <= _STARVED_RATIO:
        reasons += _explain_launches(shares, comparison.margin_ratio)
    return replace(
        comparison,
        decision=decision,
        own_ratio=own,
        reasons=tuple(reasons),
        a_launch=shares.get(comparison.a),
        b_launch=shares.get(comparison.b),
    )


def _explain_launches(shares: Mapping[str, LaunchShare], tolerance_ratio: float) -> list[str]:
    return [
        f"launching makes up to {share.launch_s / share.call_s:.1%} of {name}: capture a graph to compare the kernels"
        for name, share in shares.items()
        if share.starved_ratio > 0.0 and (share.excess_ratio is None or share.excess_ratio > tolerance_ratio)
    ]


def _explain_gap(shared: Interval, own: Interval) -> list[str]:
    gap = own.centre / shared.centre - 1.0
    if abs(gap) <= _GAP_RATIO or (own.low <= shared.high and shared.low <= own.high):
        return []
    more, slower = ("more", "slower") if gap > 0 else ("less", "faster")
    return [
        f"alone it is {abs(gap):.1%} {slower} than at a shared clock, as expected under a power cap if it draws {more} power"
    ]
