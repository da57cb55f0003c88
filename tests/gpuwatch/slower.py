"""Recorded evidence reduced to the present lanes: clock and reasons as recorded, the rest of the fast row at 20 Hz."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import SIGNALS, Column, Evidence, Lane, Times, WindowRecord
from gpuwatch.sampling.plan import PULSE, ROW_NS


def slower(evidence: Evidence, *, phase_ns: int = 0, period_ns: int = ROW_NS, changes_only: bool = True) -> Evidence:
    """Return evidence with the fast row, except clock and reasons, every ``period_ns`` from ``phase_ns`` on and at the edges.

    ``changes_only``: the recording has no repeated rows, so a value lasts until the next row.  Otherwise rows are actual reads,
    and the first read of each period is kept.
    """
    thin = _keep_last if changes_only else _keep_first
    columns = {
        name: thin(column, evidence.window, phase_ns, period_ns)
        if SIGNALS[name] is Lane.FAST and name not in PULSE and len(column) else column
        for name, column in evidence.trace.columns.items()
    }  # fmt: skip
    return replace(evidence, trace=replace(evidence.trace, columns=columns))


def _keep_last(column: Column, window: WindowRecord, phase_ns: int, period_ns: int) -> Column:
    """Return the last value up to each deadline: of several changes between two deadlines, only the last remains."""
    first_ns = int(column.at_ns[0])
    deadlines = -(-(column.at_ns - first_ns - phase_ns) // period_ns) * period_ns + first_ns + phase_ns
    last = np.append(np.diff(deadlines) > 0, True)
    return _with_edges(column, window, deadlines[last], np.flatnonzero(last))


def _keep_first(column: Column, window: WindowRecord, phase_ns: int, period_ns: int) -> Column:
    passes = (column.at_ns - column.at_ns[0] - phase_ns) // period_ns
    index = np.flatnonzero(np.append(True, np.diff(passes) > 0))
    return _with_edges(column, window, column.at_ns[index], index)


def _with_edges(column: Column, window: WindowRecord, at_ns: Times, index: Times) -> Column:
    """Add the last row up to the window's start, the first row from the end on, and the column's last row."""
    last = len(column) - 1
    before = max(0, int(np.searchsorted(column.at_ns, window.begin_ns, side="right")) - 1)
    after = min(last, int(np.searchsorted(column.at_ns, window.end_ns)))
    times = np.concatenate((at_ns, column.at_ns[[before, after, last]]))
    rows = np.concatenate((index, [before, after, last]))
    order = np.argsort(times, kind="stable")
    times, values = times[order], column.values[rows[order]]
    first = np.append(True, np.diff(times) > 0)
    return Column(times[first], values[first])
