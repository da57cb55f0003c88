"""The SM clock while the GPU worked, as NVML's gauge shows it: in steps of 15 MHz, ten times a second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from annotate.evidence import Column, Evidence, Reason
from annotate.stats.robust import Step, block_means, centre, step

_GRID_NS = 10_000_000
# A search over more blocks places a step no better, and takes longer by the square of their number.
_MOST_BLOCKS = 600
# A straight line leaves a two-level fit half of its deviation; a step within noise leaves it less.
_EXPLAINED_RATIO = 0.7


def working(evidence: Evidence) -> Column:
    """The gauge over the window but its first refresh, NaN while the driver calls the GPU idle; empty if it does not speak.

    It does not in a window shorter than three refreshes, nor when it was unobserved, or the GPU idle, half of the time.
    """
    none = Column(np.empty(0, np.int64), np.empty(0, np.float64))
    if evidence.window.length_ns < 3 * evidence.trace.refresh_of_ns("sm_clock_mhz"):
        return none
    column = evidence.within("sm_clock_mhz", step_ns=_GRID_NS)
    masks = np.nan_to_num(evidence.trace.at("event_reasons_mask", column.at_ns)).astype(np.int64)
    values = np.where(masks & int(Reason.GPU_IDLE), np.nan, column.values)
    return Column(column.at_ns, values) if 2 * int((~np.isnan(values)).sum()) >= len(values) else none


def median_mhz(column: Column) -> float | None:
    """The median of what was observed; None of nothing."""
    known = column.observed
    return centre(known.values) if len(known) else None


@dataclass(frozen=True, slots=True)
class Move:
    """A step of a series: when the second level began, and both levels."""

    at_ns: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before - 1.0


def sudden(
    column: Column,
    *,
    block_ns: int,
    least_ratio: float,
    side_count: int = 3,
    deviations: float = 5.0,
    explained_ratio: float = _EXPLAINED_RATIO,
) -> Move | None:
    """The one step that explains how a series went, or None if it did not step, or stepped more than once.

    It must be of ``least_ratio``, beyond so many robust standard ``deviations`` of what the two levels leave, and leave
    ``side_count`` blocks on each side.
    """
    if len(column) < 2:
        return None
    span_ns = int(column.at_ns[-1] - column.at_ns[0])
    blocks = block_means(column, max(block_ns, span_ns // _MOST_BLOCKS))
    if not len(blocks) or not (blocks.values > 0).all():
        return None
    at: Step | None = step(blocks.values, side=side_count, floor=0.001 * centre(blocks.values))
    if at is None or at.explained_ratio < explained_ratio or at.significance < deviations:
        return None
    move = Move(int(blocks.at_ns[at.index]) - max(block_ns, span_ns // _MOST_BLOCKS) // 2, at.before, at.after)
    return move if abs(move.ratio) >= least_ratio else None
