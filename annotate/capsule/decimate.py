"""Decimation of long columns: rows between extremes are dropped, and repeated rows are restored when a column is read."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from annotate.evidence import HEARTBEAT_NS, Column, Times

Index = npt.NDArray[np.int64]

LONG_NS = 600_000_000_000  # shorter evidence keeps all rows
WHOLE_NS = 10_000_000_000  # all rows this near to an edge of the window are kept, for onsets and counters
BUCKETS_COUNT = 800
KEPT_SILENCES_COUNT = 500
FILLED_COUNT = 10_000_000  # most rows to restore: eleven days of a counter at 10 Hz


@dataclass(frozen=True, slots=True)
class Thinned:
    """The kept rows of a column, the step at which values repeat, and the rows before a silence.

    A silence is more than 1.5 usual steps (at least 1.5 heartbeats) without a row.
    """

    index: Index
    step_ns: int
    silent: Index  # positions in ``index``


def thin(at_ns: Times, values: npt.NDArray[np.float64], begin_ns: int, end_ns: int, *, counts: bool = False) -> Thinned | None:
    """Select the rows to keep.  Return None for a column of at most 3200 rows.

    The kept rows are the first, last, lowest and highest of each of 800 intervals, and all rows near the window's edges.  The
    rows around the 500 longest silences and around the first 3200 starts and ends of NaN are kept too.

    For a column that ``counts``, lowest and highest are relative to an even rise: these rows show when the rise began and
    ended.
    """
    count = len(at_ns)
    if count <= 4 * BUCKETS_COUNT:
        return None
    edges = np.linspace(0, count, BUCKETS_COUNT + 1).astype(np.int64)
    starts, ends = edges[:-1], edges[1:]
    blank = np.isnan(values)
    shown = values - np.interp(at_ns, at_ns[edges[:-1]], values[edges[:-1]]) if counts else values
    low, high = np.where(np.isnan(shown), np.inf, shown), np.where(np.isnan(shown), -np.inf, shown)
    lowest = [int(a + np.argmin(low[a:b])) for a, b in zip(starts, ends, strict=True)]
    highest = [int(a + np.argmax(high[a:b])) for a, b in zip(starts, ends, strict=True)]
    near = (np.abs(at_ns - begin_ns) <= WHOLE_NS) | (np.abs(at_ns - end_ns) <= WHOLE_NS)
    distances_ns = np.diff(at_ns)
    usual_ns = max(1, int(np.median(distances_ns)))
    silences = np.flatnonzero(distances_ns > max(HEARTBEAT_NS, usual_ns) * 3 // 2)
    # Keep the longest silences; a dropped shorter one hides little unwatched time.
    silences = silences[np.argsort(distances_ns[silences])[-KEPT_SILENCES_COUNT:]]
    blanks = np.flatnonzero(np.diff(blank.astype(np.int8)))[: 4 * BUCKETS_COUNT]
    parts = [starts, ends - 1, lowest, highest, np.flatnonzero(near), silences, silences + 1, blanks, blanks + 1]
    index = np.unique(np.concatenate([np.asarray(part, np.int64) for part in parts]))
    # A constant gauge needs one row per heartbeat; a rising counter needs rows at the usual step.
    step_ns = usual_ns if counts else max(HEARTBEAT_NS, usual_ns)
    return Thinned(index, step_ns, np.searchsorted(index, np.sort(silences)).astype(np.int64))


def filled(column: Column, step_ns: int, silent: Index, *, counts: bool) -> Column:
    """Return a column with kept rows repeated at the step, except during silences.

    A column that ``counts`` rises evenly between two kept rows: repeated rows would be constant and then jump.

    Raises ValueError: as ``fill_index``.
    """
    index, at_ns = fill_index(column.at_ns, step_ns, silent)
    values = column.values[index]
    if counts and len(column) > 1:
        following = np.minimum(index + 1, len(column) - 1)
        rise = column.values[following] - values
        share = (at_ns - column.at_ns[index]) / np.maximum(1, column.at_ns[following] - column.at_ns[index])
        values = values + np.where(rise > 0, np.round(rise * share, 3), 0.0)
    return Column(at_ns, values)


def fill_index(at_ns: Times, step_ns: int, silent: Index) -> tuple[Index, Times]:
    """Return the index and the time of each restored row.

    Raises ValueError: for more than ``FILLED_COUNT`` rows, for no row, and for a step of 0 or less.
    """
    if step_ns <= 0 or len(at_ns) == 0:
        raise ValueError(f"expected at least one row and a positive step, found {len(at_ns)} rows and a step of {step_ns} ns")
    left_ns = np.append(np.diff(at_ns), 1)
    left_ns[silent] = 1
    counts = np.maximum(1, -(-left_ns // step_ns))
    if counts.sum() > FILLED_COUNT:
        raise ValueError(f"expected at most {FILLED_COUNT} rows, found {counts.sum()}")
    index = np.repeat(np.arange(len(at_ns)), counts)
    nth = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, at_ns[index] + nth * step_ns
