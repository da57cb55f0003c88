"""The numbers of a window: throughput, mean, median and median at one clock, each with its repeatability.

The repeatability U of a number is the square root of within² + between².  *Within* is the half width of the number's 95 %
interval in this window.  *Between* is the spread of the number over this card's record of this work.  Without a record,
*between* is the measured difference of two clean windows of the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from annotate.budget import Number, NumberBudget, Repeatability
from annotate.derived.busy import memory_use_ratio
from annotate.derived.clock_blocks import CYCLE_NS
from annotate.derived.held import may_be_capped
from annotate.derived.idle_gaps import IdleGaps
from annotate.derived.time_levels import FEWEST_COUNT
from annotate.evidence import Evidence, Times, Timings, Values, WorkRecord
from annotate.stats.long_run import WithinSpread, mean_within, median_within
from annotate.stats.robust import centre
from annotate.times.at_one_clock import OneClockTimes
from annotate.times.reference_clock import card_spread_ratio

WITHIN, WITHIN_AND_BETWEEN = "within this window, and as far as clean windows were measured to differ", "within and between"
UNTIMED, TOO_FEW, TOO_SHORT = "no times were given", "fewer than 6 times", "capped, and shorter than two cycles of 1 s"
_UNKNOWN_MEDIAN = "too few independent times hold the median"
_SAME_CLOCK_RATIO = 0.01  # numbers at clocks further apart are not comparable
_MEDIAN_ERROR = 1.2533  # ratio of a median's standard error to a mean's, for normal values
_CONFIDENCE = 0.95
# By the specification, medians at one clock of the same clean work differ by up to 0.06 %.  No raw number repeats better.
LEAST_RATIO = 6e-4
# About nine in ten pairs of clean H200 windows differ by no more than the bound, *within* and these ratios together.  The
# ratios were fitted on the truth set and the first card of `h200-paired`; docs/VALIDATION.md tests them on the other cards.
# Under a cap, rates and means vary with the level at which the controller settles.  Without a cap, rare late iterations vary
# both.  The window's edges and the host's launches also vary a rate.
_RATE_UNCAPPED_RATIO, _MEAN_UNCAPPED_RATIO = 3e-3, 2.5e-3
_MEAN_CAPPED_RATIO, _MEDIAN_CAPPED_RATIO = 3.1e-3, 4.4e-3
# No SM clock corrects memory-bound times: decoding repeats to 0.24 %, work with less traffic to 0.03 %.  The limit of
# bandwidth use lies between a softmax (0.41), which repeats, and a decoding step (0.49).
_MEDIAN_OF_MEMORY_RATIO, _MEMORY_USE_RATIO = 2.4e-3, 0.45
_RECORDED = {
    Number.THROUGHPUT: "calls_rate_hz",
    Number.MEAN: "mean_s",
    Number.MEDIAN: "median_s",
    Number.MEDIAN_AT_CLOCK: "median_at_clock_s",
}
_Within = Callable[[Times, Values], WithinSpread | None]


@dataclass(frozen=True, slots=True)
class MeasuredNumbers:
    """A window's numbers without their causes, and the number that leads the verdict's first line."""

    budgets: tuple[NumberBudget, ...]
    leading: Number | None

    def number(self, number: Number) -> NumberBudget:
        return next(each for each in self.budgets if each.number is number)

    def on_other_cards(self, spread_ratio: float | None) -> MeasuredNumbers:
        """Return the numbers with this spread between cards in place of the model's; None keeps the model's."""
        if spread_ratio is None:
            return self
        budgets = (
            replace(each, other_cards_ratio=each.repeatability.ratio + spread_ratio)
            if each.clock_mhz is not None and each.repeatability.ratio is not None
            else each
            for each in self.budgets
        )
        return replace(self, budgets=tuple(budgets))


def measured_numbers(
    evidence: Evidence,
    timings: Timings,
    times: OneClockTimes,
    gaps: IdleGaps | None,
    *,
    reference_mhz: float | None = None,
    clock_ratio: float | None = None,
) -> MeasuredNumbers:
    """Return the four numbers of these times; without times, only a throughput without a value, and no leading number.

    The median at one clock is at the reference clock if the exponent extrapolates that far, else at the clock of the times.
    ``gaps`` holds the irregular pauses: they are disturbances, and the throughput's repeatability excludes them.
    ``clock_ratio`` is the half width of the 95 % interval that changes of the clock alone give a mean.  This half width
    replaces *within* of the raw numbers if the times give no interval.
    """
    window_s = evidence.window.length_s
    if not len(timings.at_ns) or window_s <= 0.0:
        unknown = Repeatability(kind=UNTIMED, within_ratio=clock_ratio)
        untimed = NumberBudget(number=Number.THROUGHPUT, unit="calls/s", repeatability=unknown)
        return MeasuredNumbers((untimed,), None)
    is_capped = may_be_capped(evidence)
    cycle_ns = CYCLE_NS if is_capped else None
    at_ns, took_s, record = timings.at_ns, timings.took_s, evidence.record
    median_s = centre(took_s)

    def mean_error(at: Times, values: Values) -> WithinSpread | None:
        return mean_within(at, values, cycle_ns=cycle_ns)

    def median_error(at: Times, values: Values) -> WithinSpread | None:
        return median_within(at, values, cycle_ns=cycle_ns, middle=median_s if values is took_s else None)

    def number(number: Number, value: float, series: tuple[Times, Values], within: _Within) -> NumberBudget:
        found = _number(number, value, series, within, record, measured_between(number, evidence))
        repeats = found.repeatability
        if repeats.within_ratio is not None or clock_ratio is None:
            return found
        part_ratio = clock_ratio * (_MEDIAN_ERROR if number is Number.MEDIAN else 1.0)
        return replace(found, repeatability=replace(repeats, within_ratio=part_ratio))

    raw = (
        number(Number.THROUGHPUT, len(at_ns) * timings.calls_count / window_s, _rounds(timings, gaps), mean_error),
        number(Number.MEAN, float(took_s.mean()), (at_ns, took_s), mean_error),
        number(Number.MEDIAN, median_s, (at_ns, took_s), median_error),
    )
    at_one_clock = _at_one_clock(evidence, times, reference_mhz)
    model = evidence.device.name if evidence.device is not None else None
    numbers = (*raw, replace(at_one_clock, other_cards_ratio=_other_cards(at_one_clock, times, model)))
    return MeasuredNumbers(numbers, _leading(evidence, numbers[-1], is_capped=is_capped))


def _number(
    number: Number, value: float, series: tuple[Times, Values], within: _Within, record: WorkRecord | None, measured: float
) -> NumberBudget:
    unit = "calls/s" if number is Number.THROUGHPUT else "s"
    if len(series[1]) < FEWEST_COUNT - (number is Number.THROUGHPUT):
        return NumberBudget(number=number, value=value, unit=unit, repeatability=Repeatability(kind=TOO_FEW))
    found = within(*series)
    unknown = "" if found else _why_unknown(series[0], within, number)
    repeatability = _repeatability(found.half_ratio if found else None, unknown, _recorded(number, record), measured)
    return NumberBudget(number=number, value=value, unit=unit, repeatability=repeatability)


def _at_one_clock(evidence: Evidence, times: OneClockTimes, reference_mhz: float | None) -> NumberBudget:
    number, record = Number.MEDIAN_AT_CLOCK, evidence.record
    if times.clock_mhz is None:
        return NumberBudget(number=number, unit="s", repeatability=Repeatability(kind=times.refusal))
    mhz = times.clock_mhz
    if reference_mhz is not None and times.fit is not None and not times.why_not_at(reference_mhz):
        mhz = reference_mhz
    middle_s = centre(times.took_s)
    value_s = middle_s * times.factor(mhz)
    # Times at one clock contain no cycle of the power controller.
    is_enough = len(times.took_s) >= FEWEST_COUNT
    found = median_within(times.at_ns, times.took_s, cycle_ns=None, middle=middle_s) if is_enough else None
    within_ratio = float(np.hypot(found.half_ratio, times.moved_ratio(mhz))) if found else None
    recorded = _recorded(number, record) if record is not None and _is_same_clock(record.clock_mhz, mhz) else ()
    unknown = TOO_FEW if len(times.took_s) < FEWEST_COUNT else _UNKNOWN_MEDIAN
    measured = measured_between(number, evidence, is_corrected=times.fit is not None)
    return NumberBudget(
        number=number,
        value=value_s,
        unit="s",
        clock_mhz=mhz,
        repeatability=_repeatability(within_ratio, unknown, recorded, measured),
    )


def _other_cards(number: NumberBudget, times: OneClockTimes, model: str | None) -> float | None:
    """Return the expected difference of this number on another card of the model, or None if unknown.

    The spread is a limit, not a standard deviation, so it adds linearly to the repeatability.
    """
    if number.clock_mhz is None or number.repeatability.ratio is None or times.clock_mhz is None:
        return None
    moved = float(np.log(number.clock_mhz / times.clock_mhz)) if times.fit is not None else 0.0
    spread_ratio = card_spread_ratio(model, moved=moved)
    return None if spread_ratio is None else number.repeatability.ratio + spread_ratio


def measured_between(number: Number, evidence: Evidence, *, is_corrected: bool = False) -> float:
    """Return the measured difference of a number between two clean windows of the same work: *between* without a record.

    ``is_corrected`` means that an exponent was fitted to the clock.  Without a fit, the number at one clock repeats as the
    raw median does.
    """
    if number is Number.MEDIAN_AT_CLOCK and is_corrected:
        return LEAST_RATIO
    is_capped = may_be_capped(evidence)
    if number in (Number.MEDIAN, Number.MEDIAN_AT_CLOCK):
        if is_capped:
            return _MEDIAN_CAPPED_RATIO
        use = memory_use_ratio(evidence)
        return LEAST_RATIO if use is not None and use < _MEMORY_USE_RATIO else _MEDIAN_OF_MEMORY_RATIO
    if is_capped:
        return _MEAN_CAPPED_RATIO
    return _RATE_UNCAPPED_RATIO if number is Number.THROUGHPUT else _MEAN_UNCAPPED_RATIO


def _repeatability(within_ratio: float | None, unknown: str, recorded: tuple[float, ...], measured: float) -> Repeatability:
    """Return U; unknown without *within*, because a record cannot replace the interval of a short window."""
    between_ratio = between(recorded)
    if within_ratio is None:
        return Repeatability(None, unknown, len(recorded), None, between_ratio)
    if between_ratio is None:
        return Repeatability(float(np.hypot(within_ratio, measured)), WITHIN, 0, within_ratio, None)
    both_ratio = float(np.hypot(within_ratio, between_ratio))
    return Repeatability(both_ratio, WITHIN_AND_BETWEEN, len(recorded), within_ratio, between_ratio)


def between(recorded: tuple[float, ...]) -> float | None:
    """Return the half width of the 95 % prediction interval for one more number, as a ratio of the mean.

    Return None for fewer than two recorded numbers, or where their mean is not positive.
    """
    from scipy.special import stdtrit

    if len(recorded) < 2:
        return None
    values = np.asarray(recorded, np.float64)
    middle = float(values.mean())
    if not np.isfinite(middle) or middle <= 0.0:
        return None
    error = float(values.std(ddof=1)) * float(np.sqrt(1.0 + 1.0 / len(values)))  # prediction error of one more number
    return float(stdtrit(len(values) - 1, 0.5 + 0.5 * _CONFIDENCE)) * error / middle


def recorded_values(number: NumberBudget, record: WorkRecord | None) -> tuple[float, ...]:
    """Return the recorded values of a number; none if the record's clock differs from the number's."""
    if record is None or (number.clock_mhz is not None and not _is_same_clock(record.clock_mhz, number.clock_mhz)):
        return ()
    return _recorded(number.number, record)


def _recorded(number: Number, record: WorkRecord | None) -> tuple[float, ...]:
    return record.values(_RECORDED[number]) if record is not None else ()


def _is_same_clock(recorded_mhz: float | None, mhz: float) -> bool:
    return recorded_mhz is not None and abs(recorded_mhz / mhz - 1.0) <= _SAME_CLOCK_RATIO


def _rounds(timings: Timings, gaps: IdleGaps | None) -> tuple[Times, Values]:
    """Return the time from each start to the next, without rounds that hold an irregular gap.

    Without ``gaps``, or with fewer than two start times, return the times unchanged.
    """
    if gaps is None or len(timings.at_ns) < 2:
        return timings.at_ns, timings.took_s
    rounds_s = np.diff(timings.at_ns) / 1e9
    kept = _undisturbed(timings, gaps)
    return timings.at_ns[:-1][kept], rounds_s[kept]


def _undisturbed(timings: Timings, gaps: IdleGaps) -> npt.NDArray[np.bool_]:
    """Return a mask of the rounds, from each start to the next, that hold no irregular gap."""
    kept = np.ones(len(timings.at_ns) - 1, np.bool_)
    # A gap ends where an entry begins, so the previous entry's round holds it.
    ends_ns = gaps.end_ns[gaps.irregular]
    place = np.searchsorted(timings.at_ns, ends_ns, side="right") - 2
    kept[place[(place >= 0) & (place < len(kept))]] = False
    return kept


def _why_unknown(at_ns: Times, within: _Within, number: Number) -> str:
    """Return the reason for a missing interval: the window is too short if even a constant series has none."""
    if within(at_ns, np.ones(len(at_ns))) is None:
        return TOO_SHORT
    return _UNKNOWN_MEDIAN if number is Number.MEDIAN else TOO_FEW


def _leading(evidence: Evidence, at_one_clock: NumberBudget, *, is_capped: bool) -> Number:
    """Return the leading number: the mean of times that vary by design, else the median at one clock if it has a value.

    Without that value, the mean leads under a cap, else the median.
    """
    if evidence.declared.get("varies") is True:
        return Number.MEAN
    if at_one_clock.value is not None:
        return Number.MEDIAN_AT_CLOCK
    return Number.MEAN if is_capped else Number.MEDIAN
