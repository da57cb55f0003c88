"""Deviations of a window's numbers from this card's record of the same work, with all causes combined."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from annotate.budget import Bound, Estimate, Group, Number, NumberBudget
from annotate.derived.clock_blocks import ClockBlocks
from annotate.derived.foreign_work import RecordShift, shift
from annotate.derived.load_time import LoadTime
from annotate.derived.measured_numbers import recorded_values
from annotate.derived.steady_reference import SteadyBy, steady_reference
from annotate.evidence import Evidence, WorkRecord

# The driver's clock over the true one.  On an H200: -0.2 to +12 % under a cap, +8 % with short kernels.
_GAUGE = (0.98, 1.18)
# The largest difference between clean windows of one work on H200s, minutes apart.  Windows in a row differ less.
_NATURAL_RATIO, _NATURAL_AT_CLOCK_RATIO = 0.014, 0.0015


def compared(numbers: Sequence[NumberBudget], record: WorkRecord | None) -> Mapping[Number, RecordShift]:
    """Return the shift of each number that the record also holds; its error includes the number's interval in this window."""
    found: dict[Number, RecordShift] = {}
    for each in numbers:
        beside = shift(each.value, recorded_values(each, record))
        if beside is not None:
            within_ratio = each.repeatability.within_ratio or 0.0
            found[each.number] = RecordShift(beside.ratio, beside.error_ratio + within_ratio)
    return found


def record_bounds(rule: str, shifts: Mapping[Number, RecordShift]) -> tuple[Bound, ...]:
    """Return a bound for each number whose shift exceeds its error and the natural difference between windows."""
    return tuple(
        Bound(number=number, rule=rule, group=Group.WHOLE, ratio=found.bound_ratio, estimate=found.estimate)
        for number, found in shifts.items()
        if abs(found.ratio) > max(found.error_ratio, natural_ratio(number))
    )


def natural_ratio(number: Number) -> float:
    """Return the difference from a record that also occurs between clean windows."""
    return _NATURAL_AT_CLOCK_RATIO if number is Number.MEDIAN_AT_CLOCK else _NATURAL_RATIO


def clock_record_bounds(
    rule: str, evidence: Evidence, blocks: ClockBlocks | None, load: LoadTime, swing_ratio: float | None
) -> tuple[Bound, ...] | None:
    """Return any bound of throughput in a window without times: its steady clock against that of the record.

    Return None if either clock is unknown or the window itself has no steady state.
    """
    recorded_mhz = evidence.record.values("steady_clock_mhz") if evidence.record is not None else ()
    if blocks is None or not recorded_mhz or not blocks.known.any():
        return None
    places = _steady_places(evidence, blocks, load)
    beside = shift(float(blocks.mhz[blocks.known][places].mean()) if len(places) else None, recorded_mhz)
    if beside is None:
        return None
    error_ratio = beside.error_ratio + (swing_ratio or 0.0)
    gauge = (1.0, 1.0) if blocks.is_true else _GAUGE
    # The true clock is the shown one over the gauge's factor.
    low, high = ((1.0 + beside.ratio) / factor - 1.0 for factor in reversed(gauge))
    low, high = max(low - error_ratio, -1.0), high + error_ratio
    if low <= natural_ratio(Number.THROUGHPUT) and high >= -natural_ratio(Number.THROUGHPUT):
        return ()
    middle = float(np.clip(beside.ratio, low, high))
    estimate = Estimate(low, middle, high)
    ratio = max(abs(low), abs(high))
    return (Bound(number=Number.THROUGHPUT, rule=rule, group=Group.WHOLE, ratio=ratio, estimate=estimate),)


def _steady_places(evidence: Evidence, blocks: ClockBlocks, load: LoadTime) -> npt.NDArray[np.intp]:
    """Return the places of the steady state among the known blocks; empty if the window itself has no steady state."""
    steady = steady_reference(evidence, blocks, load)
    if steady.places is not None:
        return steady.places
    return np.arange(int(blocks.known.sum()) if steady.by is SteadyBy.ITSELF else 0)
