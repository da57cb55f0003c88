"""Bounds on the effect of idle time on a window's numbers: irregular stretches, and the regular pauses of the work."""

from typing import Annotated

import numpy as np

from annotate.budget import Bound, Estimate, Group, Number, Replaces
from annotate.derived.busy_share import REST_RATIO, BusyShare
from annotate.derived.held import power_cap
from annotate.derived.idle_gaps import SAMPLE_NS, IdleGaps
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO, TimeAccounts
from annotate.evidence import Evidence, Timings
from annotate.evidence.asked import kept

BOUGHT_RATIO = 1.0 / 3.0  # the specification: the part of idle time that a faster clock afterwards can regain
_NUMBERS = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)
_LEAST_WORKED_RATIO = 0.01  # a lower limit for the divisor


def interval_bound(
    idle: IdleGaps,
    rule: str,
    *,
    buys_clock: bool = False,
    replaces: Replaces = Replaces.NOTHING,
    bought_ratio: Annotated[
        float, "as for regular gaps; in recordings of capped work, a faster clock regained 20 to 25 % of a stall"
    ] = BOUGHT_RATIO,
) -> Bound:
    """Return the bound of throughput for irregular idle time, which the iterations' own times do not include.

    With ``buys_clock`` power is near its limit: a GPU that rested then runs faster, which recovers part of the loss.
    """
    lost, sure = min(1.0, idle.irregular_ratio), min(1.0, idle.sure_ratio)
    most = min(1.0, lost + idle.error_ratio)
    least = max(0.0, sure - (bought_ratio * lost if buys_clock else 0.0))
    found = idle.spans_ns()
    return Bound(
        number=Number.THROUGHPUT,
        rule=rule,
        group=Group.IDLE,
        ratio=most,
        estimate=Estimate(-most, -lost, -least),
        seen_ratio=sure,
        span_ns=(found[0][0], found[-1][1]) if found else None,
        replaces=replaces,
    )


def bought_bounds(idle: IdleGaps, rule: str, *, buys_clock: bool, replaces: Replaces = Replaces.NOTHING) -> tuple[Bound, ...]:
    """Return the bounds of the times for the faster clock after irregular idle time: a third of that time, as for regular gaps.

    The bounds are 0 without ``buys_clock``.  Stalls of 4 % in total changed the median of capped work by 1 %.  No witness
    separates that clock from the controller's swing.
    """
    ratio = BOUGHT_RATIO * min(1.0, idle.irregular_ratio) if buys_clock else 0.0
    return tuple(
        Bound(number=each, rule=rule, group=Group.IDLE, ratio=ratio, seen_ratio=0.0, replaces=replaces)
        for each in (Number.MEAN, Number.MEDIAN)
    )


def gauge_bound(lost_ratio: float, rule: str) -> Bound:
    """Return the bound if only utilisation shows that the GPU worked less than usual: its 0.2 s refresh gives no estimate."""
    return Bound(number=Number.THROUGHPUT, rule=rule, group=Group.IDLE, ratio=min(1.0, lost_ratio), seen_ratio=0.0)


def counted_regular_ratio(gaps: IdleGaps, *, error_ratio: float = BOOKS_ERROR_RATIO) -> float:
    """Return the share of the window that regular gaps take beyond the books' error."""
    return max(0.0, gaps.regular_ratio - error_ratio)


def untold_regular_ratio(
    accounts: TimeAccounts | None, dips: IdleGaps | None, *, error_ratio: float = BOOKS_ERROR_RATIO
) -> float:
    """Return the regular idle share of a window whose times have no start times; 0 without accounts.

    Neither the accounts nor utilisation count this share as work.  Irregular power dips and the books' error are subtracted.
    """
    if accounts is None:
        return 0.0
    worked = max(accounts.accounted_ratio + accounts.between_ratio, accounts.busy.ratio)
    return max(0.0, 1.0 - worked - (dips.irregular_ratio if dips is not None else 0.0) - error_ratio)


def resting_ratio(busy: BusyShare | None, dips: IdleGaps | None, *, dense_ratio: float) -> float:
    """Return the regular idle share of a window without times; 0 without utilisation.

    Utilisation does not count this share as work.  Irregular power dips are subtracted.  The share is 0 if utilisation can
    have reached ``dense_ratio``: dense loops read as low, and readings at the edges may describe the time before.
    """
    if busy is None or busy.ratio <= 0.0 or busy.most_ratio >= dense_ratio:
        return 0.0
    return max(0.0, 1.0 - busy.ratio - (dips.irregular_ratio if dips is not None else 0.0))


def keeps_period(
    timings: Timings,
    every_s: float,
    *,
    period_ratio: Annotated[float, "a loop that sleeps keeps its period to some per cent"] = 0.05,
) -> bool:
    """Return whether at least half of the entries begin the declared period after the entry before."""
    if len(timings.at_ns) < 2 or every_s <= 0.0:
        return False
    apart_s = np.diff(timings.at_ns) / 1e9
    return float((np.abs(apart_s - every_s) <= period_ratio * every_s).mean()) >= 0.5


@kept
def is_power_free(
    evidence: Evidence,
    *,
    worked_ratio: float = 1.0,
    limit_ratio: Annotated[float, "the specification: below it no pause can raise the clock"] = 0.9,
    capped_ratio: Annotated[float, "a cap for this share of the time changes a mean by less than 0.5 %"] = 0.02,
) -> bool | None:
    """Return whether power stayed so far below its limit that idle time cannot raise the clock, or None if not known.

    The driver's record is a mean over 20 ms or more.  For a loop that worked ``worked_ratio`` of the window, the power of the
    work is therefore the mean above rest over this share.
    """
    window, dense, cap = evidence.window, evidence.trace.dense_power, power_cap(evidence)
    limit_w = evidence.device.power_limit_w if evidence.device is not None else None
    low, high = np.searchsorted(dense.at_ns, (window.begin_ns, window.end_ns))
    if limit_w is None or 2 * int(high - low) * SAMPLE_NS < window.length_ns:
        return None
    drawn_w = dense.values[low:high]
    rest_w = evidence.device.idle_power_w if evidence.device and evidence.device.idle_power_w else REST_RATIO * limit_w
    working_w = rest_w + max(0.0, float(drawn_w.mean()) - rest_w) / max(worked_ratio, _LEAST_WORKED_RATIO)
    if max(float(drawn_w.max()), working_w) >= limit_ratio * limit_w:
        return False
    return None if cap is None else cap.ratio <= capped_ratio


def regular_bounds(
    counted_ratio: float,
    rule: str = "bursty-duty-cycle",
    *,
    bought_ratio: Annotated[float, "the part of the pauses that a faster clock can regain"] = BOUGHT_RATIO,
) -> tuple[Bound, ...]:
    """Return any bounds of throughput, mean and median for the faster clock after regular idle time."""
    if counted_ratio <= 0.0:
        return ()
    return tuple(Bound(number=each, rule=rule, group=Group.DUTY, ratio=bought_ratio * counted_ratio) for each in _NUMBERS)


def duty_bounds(
    evidence: Evidence, gaps: IdleGaps, timings: Timings, *, is_burst: bool = False, every_s: float | None = None
) -> tuple[Bound, ...]:
    """Return the bounds of ``bursty-duty-cycle``; none if pauses cannot raise the clock or the claim explains them."""
    if is_burst or (every_s is not None and keeps_period(timings, every_s)):
        return ()
    if is_power_free(evidence, worked_ratio=1.0 - gaps.regular_ratio - gaps.irregular_ratio):
        return ()
    return regular_bounds(counted_regular_ratio(gaps))
