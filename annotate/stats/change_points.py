"""Levels of a series: the points at which the mean changes, and the segments that share a mean.

A controller's cycle is not a change of level: if a controller swings the series, the variance must be that within one cycle
(``annotate.stats.long_run.cycle_variance``).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.evidence import Values
from annotate.stats.long_run import long_run_variance

_SHORTEST_COUNT = 2  # values: one value is not a segment
PENALTY = 7.0
_ENDS_COUNT = 64  # as many ends at once as fit into a cache, with all begins of 600 values
_LEAST_RATIO = 0.2  # least share of the series in the largest level


@dataclass(frozen=True, slots=True, eq=False)
class SeriesLevel:
    """One level of a series: its mean, and the places of the series that belong to it."""

    mean: float
    places: npt.NDArray[np.intp]
    share_ratio: float

    @property
    def count(self) -> int:
        return len(self.places)


def change_points(
    values: Values,
    variance: float,
    *,
    penalty: Annotated[float, "times ln(count) × variance, per change: tuned on clean capped windows of an H200"] = PENALTY,
    shortest_count: Annotated[int, "values of a segment: a single value may be an outlier"] = _SHORTEST_COUNT,
) -> tuple[int, ...]:
    """Return the index at which each segment after the first begins, by exact least squares.

    A change must lower the sum of squares by ``penalty`` × ln(count) × ``variance``.  A constant series has no changes.

    Source: Killick, Fearnhead & Eckley, Journal of the American Statistical Association 107 (2012) 1590-1598.
    """
    count = len(values)
    if count < 2 * shortest_count:
        return ()
    centred = values - values.mean()
    cost = change_cost(values, variance, penalty)
    if float(np.square(centred).sum()) <= cost:
        return ()
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    # The sum of squares of all values does not depend on the cuts, so the costs leave that sum out.
    best, since = np.full(count + 1, np.inf), [0] * (count + 1)
    best[0] = 0.0
    for end, saved in enumerate(_saved(sums)):
        if end >= shortest_count:
            begins = end - shortest_count + 1
            costs = best[:begins] - saved[:begins]
            at = since[end] = int(costs.argmin())
            best[end] = costs[at] + cost
    changes: list[int] = []
    end = since[count]
    while end > 0:
        changes.append(end)
        end = since[end]
    return tuple(reversed(changes))


def _saved(sums: Values) -> Iterator[Values]:
    """Yield for each end by how much the mean of a segment lowers the sum of squares, by the segment's begin."""
    for first in range(0, len(sums), _ENDS_COUNT):
        ends = np.arange(first, min(first + _ENDS_COUNT, len(sums)))
        rises = np.subtract.outer(sums[ends], sums[: ends[-1] + 1])
        yield from rises * rises / np.maximum(np.subtract.outer(ends, np.arange(ends[-1] + 1)), 1)


def find_levels(
    values: Values,
    variance: float,
    *,
    penalty: Annotated[float, "as for change points"] = PENALTY,
    least_ratio: Annotated[float, "the specification: a level counts if it holds a fifth"] = _LEAST_RATIO,
    changes: tuple[int, ...] | None = None,
) -> tuple[SeriesLevel, ...]:
    """Return the levels of a series, the lowest first; empty for an empty series.

    Segments of any position form one level, unless their separation lowers the sum of squares by the cost of a change.  A
    telegraph signal has two levels.  If no level holds ``least_ratio``, the closest levels are merged until one does, so that
    a slow drift has a level too.  ``changes`` are the change points, if they are already known.
    """
    if not len(values):
        return ()
    changes = change_points(values, variance, penalty=penalty) if changes is None else changes
    edges = (0, *changes, len(values))
    parts = [(float(values[begin:end].sum()), np.arange(begin, end)) for begin, end in pairwise(edges)]
    parts.sort(key=_mean)
    cost = change_cost(values, variance, penalty)
    while len(parts) > 1:
        apart = [_mean(high) - _mean(low) for low, high in pairwise(parts)]
        at = apart.index(min(apart))
        (low, first), (high, second) = parts[at : at + 2]
        # Sorted segments of one level differ by chance: a second level must pay the cost of a change.
        gain = apart[at] ** 2 / (1.0 / len(first) + 1.0 / len(second))
        if gain >= cost and max(len(places) for _, places in parts) >= least_ratio * len(values):
            break
        parts[at : at + 2] = [(low + high, np.concatenate([first, second]))]
    return tuple(SeriesLevel(_mean(part), np.sort(part[1]), len(part[1]) / len(values)) for part in parts)


def _mean(part: tuple[float, npt.NDArray[np.intp]]) -> float:
    """Return the mean of a part of a series, given as the sum of its values and their places."""
    return part[0] / len(part[1])


def beside_levels(values: Values, levels: tuple[SeriesLevel, ...]) -> Values:
    """Return each value minus the mean of its level."""
    out = np.array(values)
    for level in levels:
        out[level.places] -= level.mean
    return out


def straight_line(logs: Values) -> Values:
    """Return the values of the least-squares line through a series."""
    at = np.arange(len(logs)) - (len(logs) - 1) / 2
    spread = float(at @ at)
    return np.asarray(logs.mean() + at * (float(at @ logs) / spread if spread else 0.0))


def swing_variance(values: Values, quiet: float) -> float:
    """Return the variance per value that a swing leaves in a segment's mean; ``quiet`` is that of the quietest cycles.

    The quietest cycles of a swing that is not periodic understate the variance.  The long-run variance beside the levels
    that they suggest, or beside a line if that is smaller, does not.
    """
    shapes = (beside_levels(values, find_levels(values, quiet)), values - straight_line(values))
    return max(quiet, min(long_run_variance(beside)[0] for beside in shapes))


def hidden_step(values_count: int, variance: float, *, share_ratio: float = 0.5, penalty: float = PENALTY) -> float:
    """Return the size of the largest step that the penalty hides, if its level holds this share of the series."""
    gain = share_ratio * (1.0 - share_ratio) * values_count
    return float((penalty * np.log(max(values_count, 2)) * variance / gain) ** 0.5) if gain > 0.0 else float("inf")


def change_cost(values: Values, variance: float, penalty: float = PENALTY) -> float:
    """Return the least decrease of the sum of squares by a change, never below the rounding error."""
    rounding = len(values) * (1e-12 * float(np.abs(values).max())) ** 2
    return max(penalty * float(np.log(len(values))) * variance, rounding)
