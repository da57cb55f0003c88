"""What is known of one GPU over a stretch of time: readings a store gave, and after them those the screen was told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from annotate.evidence import Column, Event, Gap, Lane, ProcessList, Reading, Trace
from gpuwatch.view.live import LiveGpu

SIGNALS = ("sm_clock_mhz", "power_w", "temperature_c", "event_reasons_mask", "utilization_ratio")
SLICE_NS = 120_000_000_000  # asked for at once, so that a long stretch fills from its end and holds nobody up
SETTLE_NS = 3_000_000_000  # a store commits every half second, and the dense power of a second at once: asked again so far back
KEPT_NS = 7_200_000_000_000
_T = TypeVar("_T", ProcessList, Event)


class GpuHistory:
    """One GPU's trace, growing at both ends; a stretch that does not touch what is known begins it anew.

    What lies further than ``kept_ns`` from the end that grew last is let go.
    """

    def __init__(self, signals: Sequence[str] = SIGNALS, *, kept_ns: int = KEPT_NS) -> None:
        self.trace = Trace()
        self._signals = signals
        self._kept_ns = kept_ns
        self._asked: tuple[int, int] | None = None
        self._settled_ns = 0  # until then nothing more will come

    def tell(self, gpu: LiveGpu) -> None:
        """The last row and census of now; those known already change nothing."""
        row, known = gpu.rows.get(Lane.FAST), self.trace
        if row is not None:
            columns = {name: _appended(known.column(name), row, name, self._kept_ns) for name in self._signals}
            known = replace(known, columns={name: column for name, column in columns.items() if len(column)})
        if gpu.census is not None and (not known.censuses or gpu.census.at_ns > known.censuses[-1].at_ns):
            known = replace(known, censuses=(*known.censuses, gpu.census))
        self.trace = known

    def question(self, begin_ns: int, end_ns: int, *, every_ns: int = 0) -> tuple[int, int] | None:
        """What to ask next to know this stretch, newest first; None if it is known, or its end was asked just now."""
        if self._asked is None or self._apart(begin_ns, end_ns):
            return max(begin_ns, end_ns - SLICE_NS), end_ns
        first_ns, last_ns = self._asked
        if end_ns > last_ns + every_ns:
            since_ns = max(self._settled_ns, first_ns)
            return since_ns, min(end_ns, since_ns + SLICE_NS)
        return (max(begin_ns, first_ns - SLICE_NS), first_ns) if begin_ns < first_ns else None

    def take(self, answer: Trace, begin_ns: int, end_ns: int, *, now_ns: int) -> None:
        """An answer to a question; rows shortly before ``now_ns`` are not all there yet."""
        if self._asked is None or self._apart(begin_ns, end_ns):
            # What was told since then stays: it is newer than any answer.
            self.trace = Trace() if self._asked is not None else self.trace
            self._asked, self._settled_ns = (begin_ns, end_ns), begin_ns
        if begin_ns < self._asked[0] and end_ns < self._asked[1]:  # it grew backwards
            self._let_go_after(begin_ns + self._kept_ns)
        self._asked = min(begin_ns, self._asked[0]), max(end_ns, self._asked[1])
        if end_ns == self._asked[1]:
            self._settled_ns = max(self._settled_ns, min(end_ns, now_ns - SETTLE_NS))
        from_ns = max(self._asked[0], self._asked[1] - self._kept_ns)
        self._asked = from_ns, self._asked[1]
        columns = {name: _spliced(self.trace.column(name), answer.column(name), begin_ns, from_ns) for name in self._signals}
        gaps = {(gap.lane, gap.begin_ns): gap for gap in (*self.trace.gaps, *answer.gaps)}
        self.trace = Trace(
            columns={name: column for name, column in columns.items() if len(column)},
            dense_power=_spliced(self.trace.dense_power, answer.dense_power, begin_ns, from_ns),
            censuses=_joined(self.trace.censuses, answer.censuses, begin_ns, from_ns),
            events=_joined(self.trace.events, answer.events, begin_ns, from_ns),
            gaps=tuple(sorted((gap for gap in gaps.values() if gap.end_ns >= from_ns), key=_begin_ns)),
        )

    def _let_go_after(self, until_ns: int) -> None:
        """Nothing later than this is known any more."""
        if self._asked is None or self._asked[1] <= until_ns:
            return
        self._asked, self._settled_ns = (self._asked[0], until_ns), min(self._settled_ns, until_ns)
        self.trace = replace(
            self.trace,
            columns={name: _until(column, until_ns) for name, column in self.trace.columns.items()},
            dense_power=_until(self.trace.dense_power, until_ns),
            censuses=tuple(each for each in self.trace.censuses if each.at_ns <= until_ns),
            events=tuple(each for each in self.trace.events if each.at_ns <= until_ns),
        )

    def _apart(self, begin_ns: int, end_ns: int) -> bool:
        return self._asked is not None and (end_ns < self._asked[0] or begin_ns > self._asked[1])


def _begin_ns(gap: Gap) -> int:
    return gap.begin_ns


def _until(column: Column, until_ns: int) -> Column:
    end = int(np.searchsorted(column.at_ns, until_ns, side="right"))
    return Column(column.at_ns[:end], column.values[:end])


def _appended(column: Column, row: Reading, name: str, kept_ns: int) -> Column:
    value = getattr(row, name)
    if (len(column) and row.at_ns <= column.at_ns[-1]) or (value is None and not len(column)):
        return column
    begin = int(np.searchsorted(column.at_ns, row.at_ns - kept_ns)) if len(column) > 1024 else 0
    number = np.nan if value is None else float(value)
    return Column(np.append(column.at_ns[begin:], row.at_ns), np.append(column.values[begin:], number))


def _spliced(old: Column, new: Column, begin_ns: int, from_ns: int) -> Column:
    """New rows in place of the old ones from ``begin_ns`` to the last new row; nothing from before ``from_ns``."""
    if not len(new):
        return old
    head = slice(*np.searchsorted(old.at_ns, [from_ns, max(begin_ns, from_ns)], side="left"))
    tail = slice(int(np.searchsorted(old.at_ns, new.at_ns[-1], side="right")), None)
    return Column(
        np.concatenate((old.at_ns[head], new.at_ns, old.at_ns[tail])),
        np.concatenate((old.values[head], new.values, old.values[tail])),
    )


def _joined(old: Sequence[_T], new: Sequence[_T], begin_ns: int, from_ns: int) -> tuple[_T, ...]:
    """As ``_spliced``, of records; those of several GPUs or kinds may bear one time."""
    last_ns = new[-1].at_ns if new else begin_ns - 1
    head = [each for each in old if from_ns <= each.at_ns < begin_ns]
    return tuple(head + list(new) + [each for each in old if each.at_ns > last_ns and each.at_ns >= begin_ns])
