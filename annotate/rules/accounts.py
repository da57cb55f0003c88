"""Rules about the books: unaccounted busy time, and accounts that exceed the busy time."""

from collections.abc import Mapping
from typing import Annotated

from annotate.case import Case
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO, TimeAccounts, rest_bounds
from annotate.derived.time_overlap import TimeOverlap, overlap_bounds
from annotate.evidence import Fact
from annotate.ranges import Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Unobserved, rule


@rule(
    "unaccounted-time",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Account for all work of the GPU.  {advice}",
)
def unaccounted_time(
    case: Case,
    *,
    error_ratio: Annotated[Share, "clean H200 windows balanced to -1.1 to +0.6 percentage points"] = BOOKS_ERROR_RATIO,
) -> Answer:
    """Finds a window whose busy time differs from the sum of timed work, declared other work and neighbours.

    Why it matters:
        Times that are a hundred times too short still have steady clocks and an even median.  But utilisation shows the
        GPU's busy time, and the difference is unaccounted for.  Times that add up to more than the window have two causes.
        Calls ran concurrently, so that their mean is not the cost of a call; or calls were declared twice, so that their
        rate is too high.

    Limits of detection:
        Windows below a second, where utilisation is too coarse.  Times that are too short by less than the books' error, or
        without start times by as much as utilisation falls short of 100 %.  Next to declared other work, 2 µs per piece and
        at most 1 % in all are the timer's.  Times that are too long by less than 8 µs per call (a launch) plus 3 percentage
        points.  Host pauses that are equal after every call: they count as untimed work.  The cause of overlap: calls on
        several streams are honest, so overlap flags and never rejects.

    Remedy:
        Time all calls, or declare other work (flush, warm-up, check) with its start time and length.

    Source:
        The driver's utilisation against timed entries, their stamps and other declared work.  Without times, the driver's
        record of each process.
    """
    accounts, overlap = case.accounts, case.overlap
    beside = overlap_bounds(overlap, unaccounted_time.name, error_ratio=error_ratio) if overlap is not None else ()
    if overlap is not None and beside:
        bounds = (*(rest_bounds(accounts, unaccounted_time.name, error_ratio=error_ratio) if accounts else ()), *beside)
        return Found(facts={**(_figures(accounts) if accounts else {}), **_overlapping(overlap)}, bounds=bounds)
    if accounts is None:
        return Unobserved(case.evidence.absence or "utilisation over a second, or its process, was not observed")
    counted = accounts.counted_ratio(error_ratio)
    facts = {**_figures(accounts), "counted_ratio": counted}
    bounds = rest_bounds(accounts, unaccounted_time.name, error_ratio=error_ratio)
    if not bounds:
        return Clear(facts)
    if counted > 0.0:
        if not accounts.above_ratio(error_ratio):
            what = f"{_closed(accounts)}, and equal gaps after the calls can hold {accounts.fixed_ratio:.1%} more that was not timed"
        else:
            what = f"{_closed(accounts)}: {counted:.1%} is work that was not timed, or the times are too short"
        advice = "Time every call, or declare other work: a flush, a warm-up, a check."
    else:
        what = f"{_closed(accounts)}: {-counted:.1%} is time in which the GPU did not work, or the times are too long"
        advice = "Take times on the GPU, and declare only other work that the GPU did."
    return Found(facts={**facts, "what": what, "advice": advice}, bounds=bounds)


def _closed(accounts: TimeAccounts) -> str:
    busy, accounted = accounts.busy.ratio, accounts.accounted_ratio
    return f"the GPU was busy {busy:.1%} of the window and {accounted:.1%} is accounted for"


def _overlapping(overlap: TimeOverlap) -> Mapping[str, Fact]:
    what = (
        f"the times add up to {overlap.together_ratio:.1%} of the window, and {overlap.fits_ratio:.1%} fits: calls ran in "
        "parallel, or were declared more than once"
    )
    advice = "Declare each call once.  For calls on several streams quote the rate: each time includes work of parallel calls."
    return {"together_ratio": overlap.together_ratio, "fits_ratio": overlap.fits_ratio, "what": what, "advice": advice}


def _figures(accounts: TimeAccounts) -> Mapping[str, Fact]:
    return {
        "busy_ratio": accounts.busy.ratio,
        "accounted_ratio": accounts.accounted_ratio,
        "timed_ratio": accounts.timed_ratio,
        "stamps_ratio": accounts.stamps_ratio,
        "other_ratio": accounts.other_ratio,
        "foreign_ratio": accounts.foreign_ratio,
        "rest_ratio": accounts.rest_ratio,
    }


RULES: tuple[Rule, ...] = (unaccounted_time,)
