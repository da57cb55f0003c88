"""Rules about the books: only these judge busy time that nobody accounts for, and accounts that exceed it."""

from collections.abc import Mapping
from typing import Annotated

from annotate.case import Case
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO, TimeAccounts, rest_bounds
from annotate.evidence import Fact
from annotate.ranges import Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Unobserved, rule


@rule(
    "unaccounted-time",
    kind=RuleKind.BIAS,
    says="the GPU was busy {busy_ratio:.1%} of the window and {accounted_ratio:.1%} is accounted for: {what}",
    remedy="Account for what the GPU did.  {advice}",
)
def unaccounted_time(
    case: Case,
    *,
    error_ratio: Annotated[Share, "clean windows of an H200 closed to -1.1 to +0.6 points"] = BOOKS_ERROR_RATIO,
) -> Answer:
    """Finds a window whose busy time the timed work, the declared other work and the neighbours do not add up to.

    Why it matters:
        Times a hundred times too short have perfect clocks and an even median.  Utilisation still shows how long the GPU
        worked, and nobody can account for the rest.

    What it cannot see:
        Windows below a second, where utilisation says too little.  Times that are too short by less than the books' error.
        Times too long by less than 8 µs a call, which is what launching adds, or by less than 3 points.

    Remedy:
        Time all calls, or declare what else ran (flush, warm-up, check) with its begin and length.

    Source:
        The driver's utilisation against timed entries, their stamps and declared other work outside of them.  Without times,
        its record of each process.
    """
    accounts = case.accounts
    if accounts is None:
        return Unobserved(case.evidence.absence or "utilisation over a second, or whose time it was, was not observed")
    counted = accounts.counted_ratio(error_ratio)
    facts = {**_figures(accounts), "counted_ratio": counted}
    bounds = rest_bounds(accounts, unaccounted_time.name, error_ratio=error_ratio)
    if not bounds:
        return Clear(facts)
    if counted > 0.0:
        what = f"{counted:.1%} is work that was not timed, or the times are too short"
        advice = "Time every call, or declare what else ran: a flush, a warm-up, a check."
    else:
        what = f"{-counted:.1%} is time in which the GPU did not work, or the times are too long"
        advice = "Take times on the GPU, and declare as other work only what it did."
    return Found(facts={**facts, "what": what, "advice": advice}, bounds=bounds)


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
