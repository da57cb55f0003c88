"""The shape of a clock's change, as the name of the one rule that reports it."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from annotate.evidence import Values
from annotate.stats.change_points import SeriesLevel, straight_line

Places: TypeAlias = npt.NDArray[np.intp]

CLOCK_LEVELS, CLOCK_DRIFT, CLOCK_RAMP, REGIME_CHANGE = "clock-levels", "clock-drift", "clock-ramp", "regime-change"

_RISEN_RATIO = 0.9  # part of a ramp's rise in the first half: a waking clock approaches its level exponentially
_EDGE_COUNT = 2  # blocks: the driver shows a step up to a refresh late, which leaves an intermediate level this long


def shape_name(logs: Values, levels: Sequence[SeriesLevel], *, by_onset: bool = False) -> str:
    """Return the rule whose shape fits the levels of a clock, given as logarithms of equal blocks in order of time.

    A clock that only rises, and hardly after the first half, is a ramp.  Two or more steps in one direction, or a line that
    explains more than the levels, are a drift.  A single other step is a change of regime, and everything else is levels.
    With ``by_onset`` the load before the window decides: always a change of regime.
    """
    if by_onset:
        return REGIME_CHANGE
    if len(levels) < 2:
        return CLOCK_LEVELS
    label = np.zeros(len(logs), np.intp)
    for rank, level in enumerate(levels):
        label[level.places] = rank
    ranks = _stretches(label)
    steps = np.diff(ranks)
    is_one_way = len(steps) > 0 and bool((steps > 0).all() or (steps < 0).all())
    means = np.array([level.mean for level in levels])[label]
    if is_one_way and steps[0] > 0 and means[len(logs) // 2] - means[0] >= _RISEN_RATIO * (means[-1] - means[0]):
        return CLOCK_RAMP
    if is_one_way and len(steps) > 1:
        return CLOCK_DRIFT
    if _explained_ratio(logs, straight_line(logs)) > _explained_ratio(logs, means):
        return CLOCK_DRIFT
    if len(steps) == 1:
        return REGIME_CHANGE
    return CLOCK_LEVELS


def _stretches(label: Places) -> Places:
    """Return the level of each stretch of blocks, without the edges of steps."""
    begins = np.concatenate([[0], np.flatnonzero(np.diff(label)) + 1])
    ranks, counts = label[begins], np.diff(np.concatenate([begins, [len(label)]]))
    kept = np.ones(len(ranks), np.bool_)
    # A short level between a lower and a higher one is the edge of their step.
    kept[1:-1] = (counts[1:-1] > _EDGE_COUNT) | ((ranks[1:-1] - ranks[:-2]) * (ranks[2:] - ranks[1:-1]) < 0)
    return np.asarray(ranks[kept], np.intp)


def _explained_ratio(logs: Values, fitted: Values) -> float:
    total = float(np.square(logs - logs.mean()).sum())
    return 1.0 - float(np.square(logs - fitted).sum()) / total if total > 0.0 else 0.0
