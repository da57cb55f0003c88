"""The numbers of a window themselves: throughput, mean, median, median at one clock, and how well each repeats.

The repeatability U of a number is the square root of within² + between².  *Within* is the half width of its 95 % interval
in this window; *between* is the spread of the number over this card's record of this work, and without a record what two
clean windows of the same work were measured to differ by.
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
_SAME_CLOCK_RATIO = 0.01  # numbers at clocks further apart are two numbers
_MEDIAN_ERROR = 1.2533  # of a median, over a mean's
_FAR_RATIO = 0.25  # an exponent says nothing of clocks so far from those it was seen at
_CONFIDENCE = 0.95
# The specification: medians at one clock of the same clean work differ by up to 0.06 %, and no raw number repeats better.
LEAST_RATIO = 6e-4
# Of pairs of clean windows of H200s about nine in ten differ by no more than bound, *within* and this together.  Fitted on the
# truth set and the first card of `h200-paired`; docs/VALIDATION.md holds the other cards to it.  Rates and means under a cap
# move with the level that the controller settles at; uncapped ones with rare late iterations, and a rate also with the
# window's edges and the host's launches.
_RATE_UNCAPPED_RATIO, _MEAN_UNCAPPED_RATIO = 3e-3, 2.5e-3
_MEAN_CAPPED_RATIO, _MEDIAN_CAPPED_RATIO = 3.1e-3, 4.4e-3
# What memory sets no SM clock corrects: decoding repeats to 0.24 %, work of less traffic to 0.03 %.  The least use of the
# bandwidth lies between a softmax's (0.41), which repeats, and a decoding step's (0.49).
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
    """A window's numbers without their causes, and the one that leads its first line."""

    budgets: tuple[NumberBudget, ...]
    leading: Number | None

    def number(self, number: Number) -> NumberBudget:
        return next(each for each in self.budgets if each.number is number)

    def on_other_cards(self, spread_ratio: float | None) -> MeasuredNumbers:
        """Return the numbers with this spread between cards in place of the model's; None leaves it."""
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
    """Return the four numbers of these times, the last at the reference clock if the exponent reaches there, else at its own.

    ``gaps`` name the pauses that stand out: these are disturbances, and no part of the throughput's repeatability.  Without
    times the throughput has no value, and nothing leads.  ``clock_ratio`` is half the 95 % interval that the clock's own swing
    leaves a mean: the known part of *within* where the times tell none.
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
    if reference_mhz is not None and times.fit is not None and abs(float(np.log(reference_mhz / mhz))) <= _FAR_RATIO:
        mhz = reference_mhz
    middle_s = centre(times.took_s)
    value_s = middle_s * times.factor(mhz)
    # At one clock there is no controller's cycle left.
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
    """Return the difference to expect of this number on another card of the model; None where none is on record.

    The spread is a limit and no scatter, so that it adds to the repeatability in full.
    """
    if number.clock_mhz is None or number.repeatability.ratio is None or times.clock_mhz is None:
        return None
    moved = float(np.log(number.clock_mhz / times.clock_mhz)) if times.fit is not None else 0.0
    spread_ratio = card_spread_ratio(model, moved=moved)
    return None if spread_ratio is None else number.repeatability.ratio + spread_ratio


def measured_between(number: Number, evidence: Evidence, *, is_corrected: bool = False) -> float:
    """Return by how much two clean windows of the same work were measured to differ in a number: *between* without a record.

    A number at one clock ``is_corrected`` where an exponent was fitted; else it is the raw median, and repeats as that one does.
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
    """Return U; unknown without *within*, because a record tells nothing of a window too short for its own interval."""
    between_ratio = between(recorded)
    if within_ratio is None:
        return Repeatability(None, unknown, len(recorded), None, between_ratio)
    if between_ratio is None:
        return Repeatability(float(np.hypot(within_ratio, measured)), WITHIN, 0, within_ratio, None)
    both_ratio = float(np.hypot(within_ratio, between_ratio))
    return Repeatability(both_ratio, WITHIN_AND_BETWEEN, len(recorded), within_ratio, between_ratio)


def between(recorded: tuple[float, ...]) -> float | None:
    """Return the half width that the spread of recorded numbers gives one more of them; None of fewer than two."""
    from scipy.special import stdtrit

    if len(recorded) < 2:
        return None
    values = np.asarray(recorded, np.float64)
    middle = float(values.mean())
    if not np.isfinite(middle) or middle <= 0.0:
        return None
    error = float(values.std(ddof=1)) * float(np.sqrt(1.0 + 1.0 / len(values)))  # of one more, from the mean of these
    return float(stdtrit(len(values) - 1, 0.5 + 0.5 * _CONFIDENCE)) * error / middle


def recorded_values(number: NumberBudget, record: WorkRecord | None) -> tuple[float, ...]:
    """Return what the record holds of a number; nothing of one at another clock, which is another number."""
    if record is None or (number.clock_mhz is not None and not _is_same_clock(record.clock_mhz, number.clock_mhz)):
        return ()
    return _recorded(number.number, record)


def _recorded(number: Number, record: WorkRecord | None) -> tuple[float, ...]:
    return record.values(_RECORDED[number]) if record is not None else ()


def _is_same_clock(recorded_mhz: float | None, mhz: float) -> bool:
    return recorded_mhz is not None and abs(recorded_mhz / mhz - 1.0) <= _SAME_CLOCK_RATIO


def _rounds(timings: Timings, gaps: IdleGaps | None) -> tuple[Times, Values]:
    """Return the time from each begin to the next, without rounds that hold a pause that stands out; times without begins.

    Where begins are not known the times themselves are all there is.
    """
    if gaps is None or len(timings.at_ns) < 2:
        return timings.at_ns, timings.took_s
    rounds_s = np.diff(timings.at_ns) / 1e9
    kept = _undisturbed(timings, gaps)
    return timings.at_ns[:-1][kept], rounds_s[kept]


def _undisturbed(timings: Timings, gaps: IdleGaps) -> npt.NDArray[np.bool_]:
    """Return which rounds, from each begin to the next, hold no irregular gap."""
    kept = np.ones(len(timings.at_ns) - 1, np.bool_)
    # A gap ends where an entry begins: the round of the entry before holds it.
    ends_ns = gaps.end_ns[gaps.irregular]
    place = np.searchsorted(timings.at_ns, ends_ns, side="right") - 2
    kept[place[(place >= 0) & (place < len(kept))]] = False
    return kept


def _why_unknown(at_ns: Times, within: _Within, number: Number) -> str:
    """Return why this window alone cannot tell: if not even a steady series has an interval, it is too short."""
    if within(at_ns, np.ones(len(at_ns))) is None:
        return TOO_SHORT
    return _UNKNOWN_MEDIAN if number is Number.MEDIAN else TOO_FEW


def _leading(evidence: Evidence, at_one_clock: NumberBudget, *, is_capped: bool) -> Number:
    """The number at one clock where there is one, the mean under a cap and of times that vary by design, else the median."""
    if evidence.declared.get("varies") is True:
        return Number.MEAN
    if at_one_clock.value is not None:
        return Number.MEDIAN_AT_CLOCK
    return Number.MEAN if is_capped else Number.MEDIAN
