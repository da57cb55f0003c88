"""The readings around one window as columns, with look-ups of values and of counter increases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from annotate.evidence.column import EMPTY, Column, Times, Values, grid
from annotate.evidence.reading import HEARTBEAT_NS, SIGNALS, STALE_NS, Lane, Reading
from annotate.evidence.records import Event, Gap, PowerRecord, ProcessList

# Assumed refresh periods if none was measured: those of the driver's shared page on data-centre boards, driver 580.
_REFRESH_NS = 100_000_000
_DEFAULT_REFRESH_NS: Mapping[str, int] = {
    "utilization_ratio": 208_000_000,
    "mem_utilization_ratio": 208_000_000,
    "temperature_c": 200_000_000,
}


@dataclass(frozen=True, slots=True)
class Increase:
    """The rise of a counter between two readings near a window's edges.

    ``error_ns`` is the time that one refresh at each edge can hide; only counters of time use it.
    """

    amount: float
    begin_ns: int
    end_ns: int
    error_ns: int

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def ratio(self) -> float:
        """Return the rise of a nanosecond counter as a share of the time between the two readings."""
        return self.amount / self.span_ns

    @property
    def error_ratio(self) -> float:
        return self.error_ns / self.span_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The readings around one window, in columns; the store reads from 5 s before the window to 0.5 s after its end.

    A signal's column is a step function: a value holds until the next row, unless it goes stale before.
    ``columns`` holds only signals that were observed at least once.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    dense_power: Column = EMPTY
    process_lists: tuple[ProcessList, ...] = ()
    events: tuple[Event, ...] = ()
    gaps: tuple[Gap, ...] = ()
    refresh_ns: Mapping[str, int] = field(default_factory=dict)  # measured on this GPU, by signal

    @staticmethod
    def of(
        readings: Iterable[Reading],
        *,
        process_lists: Sequence[ProcessList] = (),
        power: Sequence[PowerRecord] = (),
        events: Sequence[Event] = (),
        gaps: Sequence[Gap] = (),
        refresh_ns: Mapping[str, int] | None = None,
    ) -> Trace:
        """Build a trace from rows in any order; all rows must be of one GPU."""
        rows = sorted(readings, key=lambda reading: reading.at_ns)
        columns: dict[str, Column] = {}
        for name in SIGNALS:
            # A signal may be read in several lanes: expensive ones also in a slower lane, cheap ones again at the edges.
            # The rows of a lane count, None included, if any row of that lane has the signal.
            lanes = {row.lane for row in rows if getattr(row, name) is not None}
            of_lanes = [row for row in rows if row.lane in lanes]
            if of_lanes:
                values = np.array([getattr(row, name) for row in of_lanes], np.float64)
                columns[name] = Column(np.array([row.at_ns for row in of_lanes], np.int64), values)
        dense = sorted({t: w for record in power for t, w in zip(record.sample_at_ns, record.sample_w, strict=True)}.items())
        return Trace(
            columns=columns,
            dense_power=Column(np.array([t for t, _ in dense], np.int64), np.array([w for _, w in dense], np.float64)),
            process_lists=tuple(sorted(process_lists, key=lambda process_list: process_list.at_ns)),
            events=tuple(sorted(events, key=lambda event: event.at_ns)),
            gaps=tuple(sorted(gaps, key=lambda gap: gap.begin_ns)),
            refresh_ns=dict(refresh_ns or {}),
        )

    def observes(self, name: str) -> bool:
        return name in self.columns

    def column(self, name: str) -> Column:
        """Return the whole column of a signal, empty if the signal was never observed."""
        return self.columns.get(name, EMPTY)

    def refresh_of_ns(self, name: str) -> int:
        """Return the refresh period of a signal: as measured on this GPU, else the default of data-centre boards."""
        return self.refresh_ns.get(name) or _DEFAULT_REFRESH_NS.get(name, _REFRESH_NS)

    def at(self, name: str, times_ns: Times) -> Values:
        """Return the value at each of these times; NaN before the first row, for a stale value, and in a gap.

        A value of the fast lane is stale after 1.5 heartbeats, a value of another lane after 11 s.
        """
        column = self.column(name)
        if not len(column):
            return np.full(len(times_ns), np.nan)
        index = column.at_ns.searchsorted(times_ns, side="right") - 1
        lane = SIGNALS.get(name, Lane.FAST)
        stale_ns = STALE_NS if lane is Lane.FAST else 11_000_000_000
        known = (index >= 0) & (times_ns - column.at_ns[index] <= stale_ns)
        out = np.where(known, column.values[index], np.nan)
        for gap in self.gaps:
            if gap.lane == lane:
                out[(times_ns > gap.begin_ns) & (times_ns < gap.end_ns)] = np.nan
        return out

    def within(self, name: str, begin_ns: int, end_ns: int, *, step_ns: int = 10_000_000) -> Column:
        """Return the signal on a regular ``grid`` from start (inclusive) to end (exclusive), coarser over a long span."""
        times = grid(begin_ns, end_ns, step_ns)
        return Column(times, self.at(name, times))

    def increase(self, name: str, begin_ns: int, end_ns: int) -> Increase | None:
        """Return the rise of a counter over an interval, or None if no readings bracket the interval closely enough.

        The readings are the nearest ones outside the interval.  A reading inside also counts within 5 % of the interval (at
        least 50 ms) of an edge.  Between windows, a slow lane is read too rarely to bracket a window's start.
        Return None too for a counter that fell: a driver reload reset that counter.
        """
        seen = self.column(name).observed
        at_ns, values = seen.at_ns, seen.values
        if len(at_ns) < 2:
            return None
        slack_ns = max(50_000_000, (end_ns - begin_ns) // 20)
        first = int(at_ns.searchsorted(begin_ns, side="right")) - 1
        reach_ns = max(2 * HEARTBEAT_NS, slack_ns)
        if first < 0 or begin_ns - at_ns[first] > reach_ns:
            first += 1
            if first >= len(at_ns) or at_ns[first] > begin_ns + slack_ns:
                return None
        last = int(at_ns.searchsorted(end_ns, side="left"))
        if last >= len(at_ns) or at_ns[last] - end_ns > reach_ns:
            last -= 1
            if last < 0 or at_ns[last] < end_ns - slack_ns:
                return None
        if last <= first or values[last] < values[first]:
            return None
        return Increase(
            amount=float(values[last] - values[first]),
            begin_ns=int(at_ns[first]),
            end_ns=int(at_ns[last]),
            error_ns=2 * self.refresh_of_ns(name),
        )
