"""Readings at one past moment: the rows of a screen that shows the past."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from annotate.evidence import SIGNALS, Column, Device, Lane, ProcessList, Reading, Trace
from gpuwatch.view.live import LiveGpu

REACH_NS = 12_000_000_000  # longer than the slow lane's usual period of ten seconds without a window

# Types of a reading's fields other than float: columns hold every signal as float.
_TYPES: Mapping[str, type] = {
    each.name: bool if "bool" in str(each.type) else int
    for each in fields(Reading)
    if "int" in str(each.type) or "bool" in str(each.type)
}


def then(device: Device, trace: Trace, at_ns: int, *, period_ns: int | None = None, lost: str | None = None) -> LiveGpu:
    """Return one GPU as a live screen would have shown it: the last row of each lane, and the processes.

    Rows older than the larger of ``REACH_NS`` and three periods are left out.
    """
    reach_ns = max(REACH_NS, 3 * (period_ns or 0))
    rows = {lane: row for lane in Lane if (row := _row(device.uuid, lane, trace, at_ns, reach_ns)) is not None}
    return LiveGpu(
        device=device,
        lost=lost,
        period_ns={} if period_ns is None else {Lane.FAST: period_ns},
        rows=rows,
        process_list=_process_list(trace, at_ns, reach_ns),
    )


def _row(uuid: str, lane: Lane, trace: Trace, at_ns: int, reach_ns: int) -> Reading | None:
    """Return the lane's signals at the lane's last reading; None without a reading, or if the reading is too old."""
    last: dict[str, int] = {}
    for name, column in trace.columns.items():
        index = int(np.searchsorted(column.at_ns, at_ns, side="right")) - 1
        if SIGNALS.get(name) is lane and index >= 0:
            last[name] = index
    row_ns = max((int(trace.column(name).at_ns[index]) for name, index in last.items()), default=None)
    if row_ns is None or at_ns - row_ns > reach_ns:
        return None
    values: dict[str, Any] = {}  # with the types of the fields
    for name in last:
        value = float(trace.at(name, np.array([row_ns], np.int64))[0])
        if not np.isnan(value):
            values[name] = _TYPES.get(name, float)(value)
    return Reading(uuid=uuid, lane=lane, at_ns=row_ns, took_ns=0, **values)


def _process_list(trace: Trace, at_ns: int, reach_ns: int) -> ProcessList | None:
    known = [process_list for process_list in trace.process_lists if at_ns - reach_ns <= process_list.at_ns <= at_ns]
    newest = next((process_list for process_list in reversed(known) if process_list.tells_use), None)
    return known[-1].with_use(newest or known[-1]) if known else None


def period_ns(trace: Trace) -> int | None:
    """Return the median period of the fast rows, or None for fewer than three rows."""
    times = max(
        (column.at_ns for name, column in trace.columns.items() if SIGNALS.get(name) is Lane.FAST), key=len, default=None
    )
    return None if times is None or len(times) < 3 else int(np.median(np.diff(times)))


def part(trace: Trace, begin_ns: int, end_ns: int) -> Trace:
    """Return the readings of an interval, both ends included."""

    def cut(column: Column) -> Column:
        rows = slice(int(np.searchsorted(column.at_ns, begin_ns)), int(np.searchsorted(column.at_ns, end_ns, side="right")))
        return Column(column.at_ns[rows], column.values[rows])

    columns = {name: cut(column) for name, column in trace.columns.items()}
    return replace(
        trace,
        columns={name: column for name, column in columns.items() if len(column)},
        dense_power=cut(trace.dense_power),
        process_lists=tuple(process_list for process_list in trace.process_lists if begin_ns <= process_list.at_ns <= end_ns),
        events=tuple(event for event in trace.events if begin_ns <= event.at_ns <= end_ns),
        gaps=tuple(gap for gap in trace.gaps if gap.begin_ns <= end_ns and gap.end_ns >= begin_ns),
    )
