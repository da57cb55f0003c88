"""The shape in which a clock changed, as the name of the rule that reports it: each bias is named once."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from annotate.evidence import Values
from annotate.stats.change_points import SeriesLevel

Places: TypeAlias = npt.NDArray[np.intp]

CLOCK_LEVELS, CLOCK_DRIFT, CLOCK_RAMP, REGIME_CHANGE = "clock-levels", "clock-drift", "clock-ramp", "regime-change"

_RISEN_RATIO = 0.9  # of a rise, in the first half: a clock that wakes nears its level as an exponential does
_EDGE_COUNT = 2  # blocks: the driver shows a step up to a refresh late, which leaves a level between both for so long


def shape_name(logs: Values, levels: Sequence[SeriesLevel], *, by_onset: bool = False) -> str:
    """Return the rule whose shape fits the levels of a clock, given as logarithms of equal blocks in order of time.

    ``by_onset`` says that the load before the window decides, not the levels.  A clock that only rises, and hardly
    after the first half, is a ramp, one other step is a change of regime, one that a line explains better than its levels do, or that goes
    one way in steps, is a drift.  Everything else has no name of its own: levels.
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
    if _explained_ratio(logs, _line(logs)) > _explained_ratio(logs, means):
        return CLOCK_DRIFT
    if len(steps) == 1:
        return REGIME_CHANGE
    return CLOCK_LEVELS


def _stretches(label: Places) -> Places:
    """Return the level of each stretch of blocks, without the edges of steps."""
    begins = np.concatenate([[0], np.flatnonzero(np.diff(label)) + 1])
    ranks, counts = label[begins], np.diff(np.concatenate([begins, [len(label)]]))
    kept = np.ones(len(ranks), np.bool_)
    # Between two others that lie on either side of it, so short a level is the edge of their step.
    kept[1:-1] = (counts[1:-1] > _EDGE_COUNT) | ((ranks[1:-1] - ranks[:-2]) * (ranks[2:] - ranks[1:-1]) < 0)
    return np.asarray(ranks[kept], np.intp)


def _line(logs: Values) -> Values:
    """Return the least-squares line through these values."""
    at = np.arange(len(logs)) - (len(logs) - 1) / 2
    spread = float(at @ at)
    return np.asarray(logs.mean() + at * (float(at @ logs) / spread if spread else 0.0))


def _explained_ratio(logs: Values, fitted: Values) -> float:
    total = float(np.square(logs - logs.mean()).sum())
    return 1.0 - float(np.square(logs - fitted).sum()) / total if total > 0.0 else 0.0
