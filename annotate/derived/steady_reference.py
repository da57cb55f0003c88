"""The steady state of uninterrupted work, from this window, this work's record or the model's measured excess."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.derived.clock_blocks import CYCLE_NS, ClockBlocks
from annotate.derived.held import power_cap
from annotate.derived.load_time import Excess, LoadTime, excess_of, unknown_excess
from annotate.derived.settings_throughout import power_limit_w
from annotate.evidence import Evidence

_SETTLED_PERCENT = 99.0  # a single sample of power may overshoot


class SteadyBy(StrEnum):
    """The origin of the steady state, as the verdict names it."""

    ITSELF = "itself"  # uncapped and far from the limit
    WINDOW = "the part after 3 s of load"
    RECORD = "this work's record"
    MODEL = "the excess measured on this model"
    RANGE = "the range of the clock: this model was not measured"


@dataclass(frozen=True, slots=True, eq=False)
class SteadyReference:
    """The steady state: places among the window's known blocks, or a clock, or only an excess over an unknown clock.

    ``excess`` is the speed that work can gain over the steady state, by the time since load began.  It is None if the whole
    window is the reference.
    """

    by: SteadyBy
    places: npt.NDArray[np.intp] | None = None
    mhz: float | None = None
    excess: Excess | None = None


def steady_reference(
    evidence: Evidence,
    blocks: ClockBlocks,
    load: LoadTime,
    *,
    capped_ratio: Annotated[float, "the specification: a window capped for at most this share is its own reference"] = 0.02,
    power_ratio: Annotated[float, "the specification: the 20 ms power stays below this share of the limit"] = 0.9,
) -> SteadyReference:
    """Return the most certain available reference: the window's steady part, the record, the whole window, an excess."""
    measured = excess_of(evidence.device.name if evidence.device else None)
    known_mhz = blocks.mhz[blocks.known]
    excess = measured or unknown_excess(float(known_mhz.min()), float(known_mhz.max()))
    span_ns = load.steady_span_ns()
    if span_ns is not None:
        places = _whole_cycles(blocks, span_ns)
        if len(places):
            return SteadyReference(SteadyBy.WINDOW, places=places, excess=excess)
    recorded = evidence.record.values("steady_clock_mhz") if evidence.record is not None else ()
    if recorded and blocks.is_true:  # the clocks of a record are true clocks
        return SteadyReference(SteadyBy.RECORD, mhz=float(np.median(recorded)), excess=excess)
    if _is_uncapped(evidence, capped_ratio, power_ratio):
        return SteadyReference(SteadyBy.ITSELF)
    return SteadyReference(SteadyBy.MODEL if measured is not None else SteadyBy.RANGE, excess=excess)


def _whole_cycles(blocks: ClockBlocks, span_ns: Sequence[int]) -> npt.NDArray[np.intp]:
    """Return the places, among the known blocks, of a span's last whole cycles: a partial cycle would shift the mean.

    A span of all blocks is returned whole; a span below one cycle gives no places.
    """
    at_ns = blocks.at_ns[blocks.known]
    inside = np.flatnonzero((at_ns >= span_ns[0]) & (at_ns + blocks.width_ns <= span_ns[1] + blocks.width_ns // 2))
    cycle_count = max(1, round(CYCLE_NS / blocks.width_ns))
    if len(inside) == len(at_ns):
        return inside
    return inside[len(inside) % cycle_count :] if len(inside) >= cycle_count else inside[:0]


def _is_uncapped(evidence: Evidence, capped_ratio: float, power_ratio: float) -> bool:
    """Return whether the power cap hardly held and power stayed far below the limit; False if either is unknown."""
    held, limit_w = power_cap(evidence), power_limit_w(evidence)
    if held is None or held.ratio > capped_ratio or not limit_w:
        return False
    window, dense = evidence.window, evidence.trace.dense_power
    power_w = dense.values[(dense.at_ns >= window.begin_ns) & (dense.at_ns <= window.end_ns)]
    if len(power_w) * 20_000_000 < window.length_ns // 2:
        power_w = evidence.within("power_w").observed.values
    return len(power_w) > 0 and float(np.percentile(power_w, _SETTLED_PERCENT)) < power_ratio * limit_w
