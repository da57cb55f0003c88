"""Rules about changes of a window's times: growth in one direction, and levels."""

from math import isfinite
from typing import Annotated

from annotate.budget import Bound
from annotate.case import Case
from annotate.derived.beyond_clock import beyond_bounds, beyond_clock_ratio, beyond_levels_ratio
from annotate.derived.time_levels import TimeLevels
from annotate.evidence import Fact
from annotate.ranges import Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule
from annotate.times.durations import NO_ITERATION, readable, readable_pair

_TOO_FEW = Unobserved("too few iterations to judge changes of their times")


@rule(
    "iteration-growth",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="the times {change} by {growth_ratio:.1%} from the first to the last, {at}",
    remedy="If the work grows by design, declare varies=True and quote the mean; else clear the state between iterations.",
)
def iteration_growth(
    case: Case,
    *,
    least_ratio: Annotated[Share, "medians at one clock of two clean windows differ by this much"] = 0.0005,
) -> Answer:
    """Finds times that grow or shrink steadily through the window.

    Why it matters:
        A searched list, a filling cache or a growing sequence changes the work.  The first second then gives another number
        than the last, and a longer window another than a shorter one.  A loop whose times grew by 30 % had a mean 15 % above
        its first time.

    Limits of detection:
        Growth below the noise of a window.  Under a power cap without stamps, growth below the controller's swing.  Intended
        growth: ``varies=True`` declares it, and the finding becomes a label.

    Remedy:
        Declare ``varies=True`` and quote the mean, or measure a fixed amount of work.

    Source:
        The Theil-Sen slope through trimmed means of blocks of 100 ms and 30 iterations (three at one clock).  Growth is a
        line that explains more than levels after a cost for each parameter, or three or more levels in one direction.  The
        bound is the largest deviation from the line's first and last fifth and its ends, or from a level that holds a fifth.
    """
    return _answer(case, iteration_growth.name, least_ratio, is_growth=True)


@rule(
    "iteration-levels",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="the times {what}",
    remedy="Find the change (inputs, algorithm, a neighbour) and measure each level separately; or declare varies=True.",
)
def iteration_levels(
    case: Case,
    *,
    least_ratio: Annotated[Share, "medians at one clock of two clean windows differ by this much"] = 0.0005,
) -> Answer:
    """Finds times with one level for part of the window and another level for the rest.

    Why it matters:
        A mean of two levels is the time of neither, and changes with their shares.  Inputs of another shape, another
        algorithm or another memory placement can cause a level that no signal of the GPU shows.

    Limits of detection:
        Levels shorter than two blocks, unless they recur at a steady clock, and a level that held throughout.  Without
        stamps, a level of the clock is also a level of the times; it counts once.  Under a cap without stamps, a step of
        less than about 2 % that holds half of 4 s, and changes within blocks of less than 2 % beyond the clock.  On H200s,
        natural variation that correlates over 4 to 100 calls counts too, as in loops over tokens.

    Remedy:
        Measure each level separately, or declare ``varies=True`` and quote the mean over whole periods.

    Source:
        Change points of trimmed means of blocks of 100 ms and 30 iterations (three at one clock).  The penalty follows from
        the differences of adjacent blocks or, for raw times under a cap, from the swing of the power controller.  In 3 s or
        more without stamps, the driver's clock removes what it explains of that swing.  At a steady
        clock, trimmed means of ten times that vary by more than 0.6 % about the levels count too.  In recorded valid windows
        these means vary by at most 0.4 %.  In 3 of 42 clean H200 windows, levels change the mean by 0.08 to 0.15 %, in two of
        them after the last stamp.
    """
    return _answer(case, iteration_levels.name, least_ratio, is_growth=False)


def _answer(case: Case, name: str, least_ratio: float, *, is_growth: bool) -> Answer:
    if not case.has_times:
        return NO_ITERATION
    found = case.time_levels
    if found is None:
        return _TOO_FEW
    facts = _facts(found)
    bounds = () if found.is_steady or found.grows is not is_growth else found.bounds(name)
    beyond_ratio, beyond_what = (0.0, "") if is_growth else _beyond(case, found)
    if beyond_ratio > _largest(bounds):
        facts["what"] = f"vary by {beyond_ratio:.1%} between {beyond_what}"
        bounds = beyond_bounds(beyond_ratio, name, bounds, is_at_one_clock=found.is_at_one_clock)
    if _largest(bounds) <= least_ratio:
        return Clear(facts)
    # Times that vary by design give a finding without bounds: their mean is claimed.
    is_claimed = case.fact("varies") is True
    return Found(facts=facts, bounds=() if is_claimed else bounds, span_ns=found.span_ns)


def _beyond(case: Case, found: TimeLevels) -> tuple[float, str]:
    """Return the variation of steady raw times beyond their clock, or of times at a steady clock beyond their levels."""
    beyond_clock = beyond_clock_ratio(case.raw_levels, case.blocks, case.timings) if found.is_steady else 0.0
    if beyond_clock:
        return beyond_clock, f"blocks of {readable(found.width_ns / 1e9)} beyond their clock"
    # Levels of times with other clocks, of the driver or loosely fitted, leave the controller's swing in the times.
    is_same = found.is_at_one_clock == case.one_clock.is_at_one_clock
    beyond = beyond_levels_ratio(found, case.evidence, case.one_clock, case.timings.calls_count) if is_same else 0.0
    return beyond, "groups of ten beyond their levels"


def _largest(bounds: tuple[Bound, ...]) -> float:
    return max((each.size_ratio for each in bounds), default=0.0)


def _facts(found: TimeLevels) -> dict[str, Fact]:
    times_s = sorted(float(found.took_s[each.places].mean()) for each in found.levels)
    at = "at one clock" if found.is_at_one_clock else "not corrected for the clock"
    fast, slow = readable_pair(times_s[0], times_s[-1])
    return {
        "what": f"have levels up to {found.apart_ratio:.1%} apart, {at}: {fast} and {slow}",
        "growth_ratio": abs(found.growth_ratio),
        "change": "grow" if found.growth_ratio > 0 else "shrink",
        "levels_count": len(found.shifts),
        "apart_ratio": found.apart_ratio,
        "fast": fast,
        "slow": slow,
        "hidden_ratio": found.hidden_ratio if isfinite(found.hidden_ratio) else None,
        "at": at,
    }


RULES: tuple[Rule, ...] = (iteration_growth, iteration_levels)
