"""Compaction of a stream of sweeps into rows; pure, so that tests need no disk.

Equal consecutive readings become one row with a duration, so an idle GPU needs almost no space.  The row's duration
records the last time at which a value was read, which heartbeats alone would not record.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from annotate.evidence import HEARTBEAT_NS, Event, Lane, PowerRecord, Process, ProcessList, Reading, Visibility
from gpuwatch.interfaces import Lost, Sweep
from gpuwatch.store.signal_columns import LANE_SIGNALS, LANE_VALUES

_MS = 1_000_000

# Smaller changes are noise of the board's power sensor; the dense power record keeps every step.
POWER_BAND_W = 1.5
GAP_NS = 250_000_000  # two refreshes of the driver's page and a margin: a longer gap can hide an event
GAP_PERIODS = 5
POWER_BLOB_NS = 8_000_000_000  # short, because commits rewrite a growing blob; five blobs fill a page

_FAST_NAMES = LANE_SIGNALS[Lane.FAST]
_POWER = tuple(i for i, name in enumerate(_FAST_NAMES) if name in ("power_w", "power_average_w"))
_fast_values = LANE_VALUES[Lane.FAST]


@dataclass(slots=True)
class SegmentRows:
    """Rows for one segment.  A row names a GPU by its UUID; the segment's tables use a number."""

    readings: list[tuple[Lane, int, str, int, tuple[Any, ...]]] = field(default_factory=list)  # lane, at, uuid, stood_ms
    process_lists: list[tuple[int, str, int, int, Visibility, tuple[Process, ...]]] = field(default_factory=list)  # + took_us
    power: list[tuple[str, tuple[int, ...], tuple[float, ...]]] = field(default_factory=list)
    gaps: list[tuple[str, Lane, int, int | None]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)  # for the ledger, which keeps events permanently

    def take(self, later: SegmentRows) -> None:
        """Append later rows, but not their events."""
        self.readings += later.readings
        self.process_lists += later.process_lists
        self.power += later.power
        self.gaps += later.gaps

    def halves(self) -> tuple[SegmentRows, SegmentRows]:
        """Return the rows, without events, as two parts of half the size."""
        first, second = SegmentRows(), SegmentRows()
        left = len(self) // 2
        for name in ("readings", "process_lists", "power", "gaps"):
            rows = getattr(self, name)
            setattr(first, name, rows[:left])
            setattr(second, name, rows[left:])
            left = max(0, left - len(rows))
        return first, second

    def loss(self) -> SegmentRows:
        """Return gaps that make a loss of these rows visible: one fast-lane gap per GPU, and the rows' other gaps."""
        spans = [(uuid, at_ns, at_ns + stood_ms * _MS) for lane, at_ns, uuid, stood_ms, _ in self.readings if lane is Lane.FAST]
        spans += [(uuid, begin_ns, end_ns) for uuid, lane, begin_ns, end_ns in self.gaps if lane is Lane.FAST and end_ns]
        lost: dict[str, tuple[int, int]] = {}
        for uuid, begin_ns, end_ns in spans:
            first_ns, last_ns = lost.get(uuid, (begin_ns, end_ns))
            lost[uuid] = min(first_ns, begin_ns), max(last_ns, end_ns)
        rest = [gap for gap in dict.fromkeys(self.gaps) if gap[1] is not Lane.FAST or gap[3] is None]
        return SegmentRows(gaps=[*rest, *((uuid, Lane.FAST, *span) for uuid, span in lost.items())])

    def __len__(self) -> int:
        return len(self.readings) + len(self.process_lists) + len(self.power) + len(self.gaps)


@dataclass(slots=True)
class _StandingRow:
    """Equal content from ``at_ns`` until ``until_ns``, and the end that ``rows()`` has already returned."""

    at_ns: int
    until_ns: int
    content: tuple[Any, ...]
    handed_ns: int = -1


@dataclass(slots=True)
class _GpuState:
    fast: _StandingRow | None = None
    pulse: _StandingRow | None = None
    listing: _StandingRow | None = None
    due_ns: int | None = None
    period_ns: int | None = None
    power_at_ns: list[int] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    power_handed: int = 0
    gaps: dict[Lane, int] = field(default_factory=dict)  # open gaps and their start times
    gaps_handed: set[Lane] = field(default_factory=set)
    last_ns: dict[Lane, int] = field(default_factory=dict)


class Compactor:
    """A converter of sweeps, in order of arrival, into rows."""

    def __init__(self) -> None:
        self._gpus: defaultdict[str, _GpuState] = defaultdict(_GpuState)
        self._rows = SegmentRows()

    def take(self, sweep: Sweep) -> None:
        gpu, observed = self._gpus[sweep.uuid], sweep.observed
        if isinstance(observed, Reading):
            if observed.lane is Lane.FAST:
                self._fast(gpu, sweep, observed)
            elif observed.lane is Lane.PULSE:
                self._pulse(gpu, observed)
            else:
                self._back(gpu, observed.uuid, observed.lane, observed.at_ns)
                self._rows.readings.append(
                    (observed.lane, observed.at_ns, observed.uuid, 0, LANE_VALUES[observed.lane](observed))
                )
                if observed.lane is Lane.EDGE:
                    self._split(gpu, observed.uuid)
        elif isinstance(observed, ProcessList):
            self._process_list(gpu, observed)
        elif isinstance(observed, PowerRecord):
            self._power(gpu, observed)
        elif isinstance(observed, Lost):
            self._lost(gpu, sweep, observed)
        else:
            self._rows.events.append(observed)

    def rows(self) -> SegmentRows:
        """Return all rows that are new or have grown since the last call."""
        for uuid, gpu in self._gpus.items():
            self._close(Lane.FAST, uuid, gpu.fast)
            self._close(Lane.PULSE, uuid, gpu.pulse)
            self._close_listing(uuid, gpu.listing)
            if len(gpu.power_at_ns) > gpu.power_handed:
                gpu.power_handed = len(gpu.power_at_ns)
                self._rows.power.append((uuid, tuple(gpu.power_at_ns), tuple(gpu.power_w)))
            for lane, begin_ns in gpu.gaps.items():
                if lane not in gpu.gaps_handed:
                    gpu.gaps_handed.add(lane)
                    self._rows.gaps.append((uuid, lane, begin_ns, None))
        rows, self._rows = self._rows, SegmentRows()
        return rows

    def restart(self) -> None:
        """Extend no earlier row from now on, because earlier rows are in another file or lost."""
        for gpu in self._gpus.values():
            gpu.fast = gpu.pulse = gpu.listing = None
            gpu.power_at_ns, gpu.power_w, gpu.power_handed = [], [], 0
            gpu.gaps_handed.clear()

    def _fast(self, gpu: _GpuState, sweep: Sweep, reading: Reading) -> None:
        at_ns, uuid, content = reading.at_ns, reading.uuid, _fast_values(reading)
        last_ns = gpu.last_ns.get(Lane.FAST)
        interval = gpu.fast
        if last_ns is not None and at_ns <= last_ns:  # out of order: another thread reads a window's edge
            if interval is None or content != interval.content:
                self._rows.readings.append((Lane.FAST, at_ns, uuid, 0, content))
            return
        was_lost = self._back(gpu, uuid, Lane.FAST, at_ns)
        is_gap = self._is_gap(gpu, sweep, last_ns, at_ns)
        if is_gap and last_ns is not None and not was_lost:
            self._rows.gaps.append((uuid, Lane.FAST, last_ns, at_ns))
        goes_on = last_ns is not None and at_ns - last_ns <= HEARTBEAT_NS and not is_gap and not was_lost
        denied = gpu.pulse is not None and _denies(content, gpu.pulse.content)
        # A row that contradicts the pulse must not extend the interval, because readers prefer a pulse that is newer than the row.
        if interval is not None and goes_on and not denied and _same(content, interval.content):
            interval.until_ns = at_ns
        else:
            self._close(Lane.FAST, uuid, interval)
            gpu.fast = _StandingRow(at_ns, at_ns, content)
        if denied:
            self._close(Lane.PULSE, uuid, gpu.pulse)
            gpu.pulse = None

    def _pulse(self, gpu: _GpuState, reading: Reading) -> None:
        """Extend or replace the pulse.  The pulse lane records no gaps, because a busy GPU without a window has no pulses."""
        content, interval = LANE_VALUES[Lane.PULSE](reading), gpu.pulse
        if interval is not None and 0 < reading.at_ns - interval.until_ns <= GAP_NS and content == interval.content:
            interval.until_ns = reading.at_ns
        else:
            self._close(Lane.PULSE, reading.uuid, interval)
            gpu.pulse = _StandingRow(reading.at_ns, reading.at_ns, content)

    def _is_gap(self, gpu: _GpuState, sweep: Sweep, last_ns: int | None, at_ns: int) -> bool:
        """Return whether the lane was silent for longer than its deadlines explain."""
        period_ns, was_ns = None, gpu.period_ns
        if gpu.due_ns is not None and sweep.due_ns > gpu.due_ns:
            period_ns = (sweep.due_ns - gpu.due_ns) // (sweep.missed_count + 1)
            gpu.period_ns = period_ns
        gpu.due_ns = sweep.due_ns
        if last_ns is None or period_ns is None:
            return last_ns is not None and at_ns - last_ns > GAP_NS
        return at_ns - last_ns > max(GAP_NS, GAP_PERIODS * min(period_ns, was_ns or period_ns))

    def _split(self, gpu: _GpuState, uuid: str) -> None:
        """Store the last reading before a window's edge as a separate row, because counters are compared between such rows."""
        interval = gpu.fast
        if interval is not None and interval.until_ns > interval.at_ns:
            self._close(Lane.FAST, uuid, interval)
            gpu.fast = _StandingRow(interval.until_ns, interval.until_ns, interval.content)

    def _process_list(self, gpu: _GpuState, process_list: ProcessList) -> None:
        was_lost = self._back(gpu, process_list.uuid, Lane.PROCESSES, process_list.at_ns)
        content = (process_list.visibility, process_list.processes)
        interval = gpu.listing
        # Utilisation covers the time since the previous call, so a list with utilisation is a point, never an interval.
        busy = any(process.utilization_ratio is not None for process in process_list.processes)
        same = interval is not None and not busy and not was_lost and content == interval.content[1:]
        if same and interval is not None and 0 < process_list.at_ns - interval.until_ns <= HEARTBEAT_NS:
            interval.until_ns = process_list.at_ns
            return
        self._close_listing(process_list.uuid, interval)
        gpu.listing = _StandingRow(process_list.at_ns, process_list.at_ns, (process_list.took_ns // 1000, *content))
        if busy:
            self._close_listing(process_list.uuid, gpu.listing)
            gpu.listing = None

    def _power(self, gpu: _GpuState, record: PowerRecord) -> None:
        for at_ns, power_w in zip(record.sample_at_ns, record.sample_w, strict=True):
            if gpu.power_at_ns and at_ns <= gpu.power_at_ns[-1]:
                continue
            if gpu.power_at_ns and at_ns - gpu.power_at_ns[0] >= POWER_BLOB_NS:
                if len(gpu.power_at_ns) > gpu.power_handed:
                    self._rows.power.append((record.uuid, tuple(gpu.power_at_ns), tuple(gpu.power_w)))
                gpu.power_at_ns, gpu.power_w, gpu.power_handed = [], [], 0
            gpu.power_at_ns.append(at_ns)
            gpu.power_w.append(power_w)

    def _lost(self, gpu: _GpuState, sweep: Sweep, lost: Lost) -> None:
        gpu.gaps.setdefault(sweep.lane, gpu.last_ns.get(sweep.lane, lost.at_ns))
        self._rows.events.append(Event(uuid=sweep.uuid, at_ns=lost.at_ns, kind="lost", text=lost.reason))

    def _back(self, gpu: _GpuState, uuid: str, lane: Lane, at_ns: int) -> bool:
        """Note a lane's answer, and end the gap of a lost lane; return True if the lane was lost."""
        gpu.last_ns[lane] = max(at_ns, gpu.last_ns.get(lane, at_ns))
        begin_ns = gpu.gaps.pop(lane, None) if gpu.gaps else None
        if begin_ns is None:
            return False
        gpu.gaps_handed.discard(lane)
        self._rows.gaps.append((uuid, lane, begin_ns, at_ns))
        return True

    def _close(self, lane: Lane, uuid: str, interval: _StandingRow | None) -> None:
        """Add a row to the result unless ``rows()`` has already returned it."""
        if interval is None or interval.handed_ns == interval.until_ns:
            return
        interval.handed_ns = interval.until_ns
        stood_ms = (interval.until_ns - interval.at_ns) // _MS
        self._rows.readings.append((lane, interval.at_ns, uuid, stood_ms, interval.content))

    def _close_listing(self, uuid: str, interval: _StandingRow | None) -> None:
        if interval is None or interval.handed_ns == interval.until_ns:
            return
        interval.handed_ns = interval.until_ns
        took_us, visibility, processes = interval.content
        stood_ms = (interval.until_ns - interval.at_ns) // _MS
        self._rows.process_lists.append((interval.at_ns, uuid, stood_ms, took_us, visibility, processes))


def _denies(content: tuple[Any, ...], pulse: tuple[Any, ...]) -> bool:
    """Return whether a full row contradicts the pulse, which then ends."""
    return any(pulsed is not None and pulsed != value for value, pulsed in zip(content, pulse, strict=True))


def _same(content: tuple[Any, ...], stored: tuple[Any, ...]) -> bool:
    """Return whether two rows are equal, apart from power changes below the sensor's noise."""
    return content == stored or all(
        value == old or (i in _POWER and value is not None and old is not None and abs(value - old) < POWER_BAND_W)
        for i, (value, old) in enumerate(zip(content, stored, strict=True))
    )
