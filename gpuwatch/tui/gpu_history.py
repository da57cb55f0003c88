"""The history of one GPU in memory: readings from the store, followed by readings of live answers."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

import numpy as np

from annotate.evidence import Column, Event, Lane, ProcessList, Reading, Trace
from gpuwatch.tui.text.plot import HOLDS_NS
from gpuwatch.view.live import LiveGpu

SIGNALS = ("sm_clock_mhz", "power_w", "power_average_w", "temperature_c", "event_reasons_mask", "utilization_ratio")
SLICE_NS = 120_000_000_000  # longest query: a long range is filled in steps
SETTLE_NS = 3_000_000_000  # newer rows may be incomplete: under load, rows are stored every 0.5 s, dense power every 1 s
KEPT_NS = 7_200_000_000_000
_T = TypeVar("_T", ProcessList, Event)


class GpuHistory:
    """One GPU's trace, which grows at both ends; a range that does not touch the trace replaces the trace.

    Rows further than ``kept_ns`` from the end that grew last are dropped.
    """

    def __init__(self, signals: Sequence[str] = SIGNALS, *, kept_ns: int = KEPT_NS) -> None:
        self.trace = Trace()
        self._signals = signals
        self._kept_ns = kept_ns
        self._known_ns: tuple[int, int] | None = None
        self._settled_ns = 0  # rows before this time are complete: no query reads them again

    def add_live(self, gpu: LiveGpu) -> None:
        """Add the last row and process list of a live answer; a repeated answer changes nothing."""
        row, known = gpu.rows.get(Lane.FAST), self.trace
        if row is not None:
            columns = {name: _appended(known.column(name), row, name, self._kept_ns) for name in self._signals}
            known = replace(known, columns={name: column for name, column in columns.items() if len(column)})
        if gpu.process_list is not None and (not known.process_lists or gpu.process_list.at_ns > known.process_lists[-1].at_ns):
            known = replace(known, process_lists=(*known.process_lists, gpu.process_list))
        self.trace = known

    def first_ns(self, since_ns: int) -> int:
        """Return the time of the first reading after ``since_ns``, or ``since_ns`` if a reading lies near that time.

        Return ``since_ns`` too without a reading, and until a query has covered that time.
        """
        if self._known_ns is None or self._known_ns[0] > since_ns:
            return since_ns
        near = (each.at_ns[np.searchsorted(each.at_ns, since_ns - HOLDS_NS) :] for each in self.trace.columns.values())
        first_ns = min((int(at_ns[0]) for at_ns in near if len(at_ns)), default=since_ns)
        return first_ns if first_ns > since_ns + HOLDS_NS else since_ns

    def next_query(self, begin_ns: int, end_ns: int, *, every_ns: int = 0) -> tuple[int, int] | None:
        """Return the next interval to query, or None if at most the last ``every_ns`` are missing."""
        if self._known_ns is None or self._is_apart(begin_ns, end_ns):
            return max(begin_ns, end_ns - SLICE_NS), end_ns
        first_ns, last_ns = self._known_ns
        if end_ns > last_ns + every_ns:
            since_ns = max(self._settled_ns, first_ns)
            return since_ns, min(end_ns, since_ns + SLICE_NS)
        return (max(begin_ns, first_ns - SLICE_NS), first_ns) if begin_ns < first_ns else None

    def add_answer(self, answer: Trace, begin_ns: int, end_ns: int, *, now_ns: int) -> None:
        """Add the answer to a query; rows shortly before ``now_ns`` may be incomplete."""
        if self._known_ns is None or self._is_apart(begin_ns, end_ns):
            # Before the first answer the trace holds only live rows, which stay.
            self.trace = Trace() if self._known_ns is not None else self.trace
            self._known_ns, self._settled_ns = (begin_ns, end_ns), begin_ns
        if begin_ns < self._known_ns[0] and end_ns < self._known_ns[1]:  # the trace grew towards the past
            self._forget_after(begin_ns + self._kept_ns)
        last_ns = max(end_ns, self._known_ns[1])
        from_ns = max(min(begin_ns, self._known_ns[0]), last_ns - self._kept_ns)
        if end_ns == last_ns:
            self._settled_ns = max(self._settled_ns, min(end_ns, now_ns - SETTLE_NS))
        self._known_ns = from_ns, last_ns
        columns = {name: _spliced(self.trace.column(name), answer.column(name), begin_ns, from_ns) for name in self._signals}
        gaps = {(gap.lane, gap.begin_ns): gap for gap in (*self.trace.gaps, *answer.gaps)}
        self.trace = Trace(
            columns={name: column for name, column in columns.items() if len(column)},
            dense_power=_spliced(self.trace.dense_power, answer.dense_power, begin_ns, from_ns),
            process_lists=_joined(self.trace.process_lists, answer.process_lists, begin_ns, from_ns),
            events=_joined(self.trace.events, answer.events, begin_ns, from_ns),
            gaps=tuple(sorted((gap for gap in gaps.values() if gap.end_ns >= from_ns), key=attrgetter("begin_ns"))),
        )

    def _forget_after(self, until_ns: int) -> None:
        if self._known_ns is None or self._known_ns[1] <= until_ns:
            return
        self._known_ns, self._settled_ns = (self._known_ns[0], until_ns), min(self._settled_ns, until_ns)
        self.trace = replace(
            self.trace,
            columns={name: _until(column, until_ns) for name, column in self.trace.columns.items()},
            dense_power=_until(self.trace.dense_power, until_ns),
            process_lists=tuple(each for each in self.trace.process_lists if each.at_ns <= until_ns),
            events=tuple(each for each in self.trace.events if each.at_ns <= until_ns),
        )

    def _is_apart(self, begin_ns: int, end_ns: int) -> bool:
        return self._known_ns is not None and (end_ns < self._known_ns[0] or begin_ns > self._known_ns[1])


def _until(column: Column, until_ns: int) -> Column:
    end = int(np.searchsorted(column.at_ns, until_ns, side="right"))
    return Column(column.at_ns[:end], column.values[:end])


def _appended(column: Column, row: Reading, name: str, kept_ns: int) -> Column:
    value = getattr(row, name)
    if (len(column) and row.at_ns <= column.at_ns[-1]) or (value is None and not len(column)):
        return column
    begin = int(np.searchsorted(column.at_ns, row.at_ns - kept_ns)) if len(column) > 1024 else 0
    return Column(
        np.append(column.at_ns[begin:], row.at_ns), np.append(column.values[begin:], np.nan if value is None else float(value))
    )


def _spliced(old: Column, new: Column, begin_ns: int, from_ns: int) -> Column:
    """Replace the old rows from ``begin_ns`` to the last new row by the new rows."""
    if not len(new):
        return old
    head = slice(*np.searchsorted(old.at_ns, [from_ns, max(begin_ns, from_ns)], side="left"))
    tail = slice(int(np.searchsorted(old.at_ns, new.at_ns[-1], side="right")), None)
    return Column(
        np.concatenate((old.at_ns[head], new.at_ns, old.at_ns[tail])),
        np.concatenate((old.values[head], new.values, old.values[tail])),
    )


def _joined(old: Sequence[_T], new: Sequence[_T], begin_ns: int, from_ns: int) -> tuple[_T, ...]:
    """Splice records as ``_spliced`` splices rows; records of several GPUs or kinds may have equal times."""
    last_ns = new[-1].at_ns if new else begin_ns - 1
    head = [each for each in old if from_ns <= each.at_ns < begin_ns]
    return tuple(head + list(new) + [each for each in old if each.at_ns > last_ns and each.at_ns >= begin_ns])
