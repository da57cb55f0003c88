"""The shape in which a clock changed, as the name of the rule that reports it: each bias is named once."""

from collections.abc import Sequence

import numpy as np

from annotate.evidence import Values
from annotate.stats.change_points import SeriesLevel

CLOCK_LEVELS, CLOCK_DRIFT, CLOCK_RAMP, REGIME_CHANGE = "clock-levels", "clock-drift", "clock-ramp", "regime-change"

_MOSTLY = 0.5  # a low start is shorter than what follows


def shape_name(logs: Values, levels: Sequence[SeriesLevel], *, by_onset: bool = False) -> str:
    """Return the rule whose shape fits the levels of a clock, given as logarithms of equal blocks in order of time.

    ``by_onset`` says that the load before the window decides, not the levels.  A clock that rises once after a short low
    start is a ramp, one other step is a change of regime, one that a line explains better than its levels do, or that goes
    one way in steps, is a drift.  Everything else has no name of its own: levels.
    """
    if by_onset:
        return REGIME_CHANGE
    if len(levels) < 2:
        return CLOCK_LEVELS
    label = np.zeros(len(logs), np.intp)
    for rank, level in enumerate(levels):
        label[level.places] = rank
    moves = np.diff(label)
    steps = moves[moves != 0]
    is_one_way = len(steps) > 0 and bool((steps > 0).all() or (steps < 0).all())
    if is_one_way and len(steps) > 1:
        return CLOCK_DRIFT
    means = np.array([level.mean for level in levels])[label]
    if _explained_ratio(logs, _line(logs)) > _explained_ratio(logs, means):
        return CLOCK_DRIFT
    if len(steps) == 1:
        start_ratio = (int(np.flatnonzero(moves)[0]) + 1) / len(logs)
        return CLOCK_RAMP if steps[0] > 0 and start_ratio < _MOSTLY else REGIME_CHANGE
    return CLOCK_LEVELS


def _line(logs: Values) -> Values:
    """Return the least-squares line through these values."""
    at = np.arange(len(logs)) - (len(logs) - 1) / 2
    spread = float(at @ at)
    return np.asarray(logs.mean() + at * (float(at @ logs) / spread if spread else 0.0))


def _explained_ratio(logs: Values, fitted: Values) -> float:
    total = float(np.square(logs - logs.mean()).sum())
    return 1.0 - float(np.square(logs - fitted).sum()) / total if total > 0.0 else 0.0
