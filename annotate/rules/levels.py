"""Rules about a window's times that change: growth in one direction, and levels."""

from math import isfinite
from typing import Annotated

from annotate.case import Case
from annotate.derived.time_levels import TimeLevels
from annotate.evidence import Fact
from annotate.ranges import Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule
from annotate.times.durations import NO_ITERATION, readable

_TOO_FEW = Unobserved("too few iterations to tell whether their times change")


@rule(
    "iteration-growth",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="the times {change} by {growth_ratio:.1%} from the first to the last, {at}",
    remedy="If the work grows by design, say varies=True and quote the mean; else find what each iteration leaves behind.",
)
def iteration_growth(
    case: Case,
    *,
    least_ratio: Annotated[Share, "medians at one clock of two clean windows differ by so much: less is no finding"] = 0.0005,
) -> Answer:
    """Finds times that grow or shrink steadily through the window without a change of the clock.

    Why it matters:
        A searched list, a filling cache or a growing sequence changes the work: the first second's number differs from the
        last one's, and a longer window gives another.  A loop whose times grew by 30 % had a mean 15 % above its begin.

    What it cannot see:
        Growth slower than the noise of a window.  Under a power cap without stamps, growth of less than the controller's
        cycle hides.  Intended growth: ``varies=True`` declares it, and makes this a label.

    Remedy:
        Say ``varies=True`` and quote the mean, or measure a fixed amount of work.

    Source:
        Theil and Sen's slope through trimmed means of blocks of 100 ms and 30 iterations, where a straight
        line explains more than levels at the price of their parameters; or three levels and more that follow each other in
        one direction.  The bound is the deviation from the first and from the last fifth.
    """
    return _answer(case, least_ratio, is_growth=True)


@rule(
    "iteration-levels",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="the times keep to levels up to {apart_ratio:.1%} apart, {at}: {fast} and {slow}",
    remedy="Find what changed between them (inputs, algorithm, a neighbour) and measure each by itself; or say varies=True.",
)
def iteration_levels(
    case: Case,
    *,
    least_ratio: Annotated[Share, "medians at one clock of two clean windows differ by so much: less is no finding"] = 0.0005,
) -> Answer:
    """Finds times that keep to one level for a part of the window and to another for the rest.

    Why it matters:
        A mean of two levels is the time of neither, and moves with their shares.  Inputs of another shape, another
        algorithm or another memory placement can make a level that no signal of the GPU shows.

    What it cannot see:
        Levels that last for less than two blocks of a refresh (their times are outliers or modes), and a level that held
        throughout.  Without stamps a level of the clock is one of the times as well, and counts once.

    Remedy:
        Measure each level by itself, or say ``varies=True`` and quote the mean over whole periods.

    Source:
        Change points of trimmed means of blocks of 100 ms and 30 iterations, with a penalty from the differences between
        neighbours or, of raw times under a cap, from a cycle of the power controller.  Of 42 clean windows of an H200 three
        have levels that move their mean by more than 0.05 %: 0.08 to 0.15 %, two of these beyond the end of the stamps.
    """
    return _answer(case, least_ratio, is_growth=False)


def _answer(case: Case, least_ratio: float, *, is_growth: bool) -> Answer:
    if not case.has_times:
        return NO_ITERATION
    found = case.time_levels
    if found is None:
        return _TOO_FEW
    facts = _facts(found)
    if found.is_steady or found.grows is not is_growth:
        return Clear(facts)
    bounds = found.bounds("iteration-growth" if is_growth else "iteration-levels")
    if max((bound.size_ratio for bound in bounds), default=0.0) <= least_ratio:
        return Clear(facts)
    # Times that vary by design are stated, not counted: the claim is about their mean.
    is_claimed = case.fact("varies") is True
    return Found(facts=facts, bounds=() if is_claimed else bounds, span_ns=found.span_ns)


def _facts(found: TimeLevels) -> dict[str, Fact]:
    times_s = sorted(float(found.took_s[each.places].mean()) for each in found.levels)
    return {
        "growth_ratio": abs(found.growth_ratio),
        "change": "grow" if found.growth_ratio > 0 else "shrink",
        "levels_count": len(found.shifts),
        "apart_ratio": found.apart_ratio,
        "fast": readable(times_s[0]),
        "slow": readable(times_s[-1]),
        "hidden_ratio": found.hidden_ratio if isfinite(found.hidden_ratio) else None,
        "at": "at one clock" if found.is_at_one_clock else "whatever the clock did",
    }


RULES: tuple[Rule, ...] = (iteration_growth, iteration_levels)
