"""Timer by CUDA events on the current stream, with stamps of the true clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from annotate.evidence import OtherWork, Timings, Values
from gpuwatch import clock
from gpuwatch.client.testimony import spared
from gpuwatch.cuda.stamp import Stamped, Stamps, thinned
from gpuwatch.errors import UsageError
from gpuwatch.timers.timer_protocol import Call, TimedEntries, TimingPlan, do_nothing, joined, joined_other_work

_OVERHEADS_COUNT = 100
_STAMPS_COUNT = 8192
_ENTRIES_MOST_COUNT = _STAMPS_COUNT // 2
# An event pair around a call that waits for its launch measures the launch.  So a spinning kernel holds the GPU until the
# host is some entries ahead.  A host slower than the GPU must be ahead by all entries.
_HOLD_ENTRIES_COUNT = 3
_HELD_MOST_S = 0.01  # entries within this host time share a hold: a longer hold would show in the power
_SPIN_HZ = 2e9
_HOST_BOUND_RATIO = 0.8
# The queue holds about a thousand launches, and a launch into a full queue waits: that wait would not be host time.
_QUEUE_COUNT = 800
_TIMED_LAUNCHES_COUNT = 256
_OWN_LAUNCHES_COUNT = 6  # per entry: flush, two events, two stamps, one spare
_FLUSH_EVENTS_COUNT = 2  # around the flush, if there is one
_READING_MOST_S = 0.05  # a longer pause between two takes is the caller's, not a reading of times


@dataclass(slots=True)
class _Cost:
    """The least observed host time of one call, and of the rest of an entry."""

    call: Call  # a reference, so that no other call can get its identity
    call_s: float
    rest_s: float


class EventsTimer:
    """A timer that records an event before and after each entry, and a stamp outside each event."""

    name = "events"

    def __init__(self, cuda: Any = None, stamps: Stamps | None = None, now_ns: Callable[[], int] = clock.now_ns) -> None:
        self._cuda = cuda or _cuda()
        self._now_ns = now_ns
        self._stamps = stamps if stamps is not None else _allocate_stamps()
        self._pool: list[Any] = []  # torch has no types
        self._costs: dict[int, _Cost] = {}  # by the identity of a plan's first call
        self._steps_s: dict[TimingPlan, float] = {}  # the least median time from the start of one entry to the next
        self._readings_s: dict[
            TimingPlan, float
        ] = {}  # the longest observed time from the end of a take's entries to the next take
        self._taken: tuple[TimingPlan, int] | None = None  # the last take, and the end of its entries
        self._filler_s = 0.0  # GPU time of the last take's untimed entries

    def close(self) -> None:
        """Release the memory of the stamps."""
        if self._stamps is not None:
            self._stamps.close()
            self._stamps = None

    def overhead_s(self) -> float:
        plan = TimingPlan(calls=(do_nothing,))
        self.take(plan, _HOLD_ENTRIES_COUNT)
        return float(np.median(self.take(plan, _OVERHEADS_COUNT).timings.took_s))

    def rest(self) -> None:
        self._cuda.synchronize()
        self._taken = None

    def take(self, plan: TimingPlan, entries_count: int) -> TimedEntries:
        pieces: list[Timings] = []
        other: list[OtherWork | None] = []
        left, busy_s, starved_count = entries_count, 0.0, 0
        while left:
            size = min(left, self._size_count(plan))
            is_slow = self._is_host_bound(plan)
            piece, piece_s, piece_other = self._take(plan, size)
            # Under a hold the host is ahead.  Without a hold, the GPU waits for the launches of a slow host.
            starved_count += size if is_slow and not _has_hold(piece_other) else 0
            pieces.append(piece)
            other.append(piece_other)
            left, busy_s = left - size, busy_s + piece_s
        issue_s = self._costs[id(plan.calls[0])].call_s
        return TimedEntries(joined(pieces), issue_s, busy_s, joined_other_work(other), starved_count)

    def _take(self, plan: TimingPlan, entries_count: int) -> tuple[Timings, float, OtherWork | None]:
        """Time entries under one hold or none; return their times, the GPU's working time, and its other work.

        The working time includes zeroing, calibrating and copying stamps, and the microseconds in between.
        """
        cuda, stamps, now_ns = self._cuda, self._stamps, self._now_ns
        anchor, held, *events = self._events((4 if plan.before is not None else 2) * entries_count + 2)
        flushes = events[2 * entries_count :]
        events = events[: 2 * entries_count]
        if stamps is not None and 2 * entries_count > stamps.count:
            stamps = None
        filled_s = self._end_reading(plan)
        # The whole device, because work on other streams would share the GPU with the first entries.
        cuda.synchronize()
        taking_ns = now_ns()
        if stamps is not None:
            stamps.clear()
        anchor.record()
        anchor_ns = now_ns()
        is_held = self._hold(plan, entries_count)
        if is_held:
            held.record()
        launched_s = self._launch(plan, events, flushes, stamps)
        starts_s, took_s = np.empty(entries_count), np.empty(entries_count)
        for number, (first, last) in enumerate(zip(events[::2], events[1::2], strict=True)):
            # One by one, while the GPU works on the rest: reading all after the last entry would leave the GPU idle.
            last.synchronize()
            starts_s[number], took_s[number] = anchor.elapsed_time(first) / 1e3, first.elapsed_time(last) / 1e3
        cuda.current_stream().synchronize()
        rows = None if stamps is None else stamps.fetch()
        self._taken = (plan, now_ns())
        fillers_count = self._fill(plan)
        self._learn(plan, *launched_s, starts_s)
        clocks = None if stamps is None or rows is None else _clocks(stamps.stamped(thinned(rows)), entries_count)
        times = Timings(anchor_ns + (starts_s * 1e9).astype(np.int64), took_s / plan.calls_count, clocks, plan.calls_count)
        spans = [*([(anchor, held)] if is_held else []), *zip(flushes[::2], flushes[1::2], strict=True)]
        other = _other_work(anchor, anchor_ns, spans, is_held=is_held)
        self._filler_s = fillers_count * self._steps_s.get(plan, 0.0)
        if fillers_count:
            filler = OtherWork(times.at_ns[-1:] + int(took_s[-1] * 1e9), np.array([self._filler_s]), ("filler",))
            other = joined_other_work([other, filler])
        return times, filled_s + (now_ns() - taking_ns) / 1e9, other

    def _launch(
        self, plan: TimingPlan, events: Sequence[Any], flushes: Sequence[Any], stamps: Stamps | None
    ) -> tuple[float, float]:
        """Launch entries between their events; return the host's time for an entry's calls, and for a whole entry."""
        calls, before, now_ns = plan.entry(), plan.before, self._now_ns
        timed_count = max(1, min(len(events) // 2, _TIMED_LAUNCHES_COUNT // _launches_count(plan)))
        calls_ns = all_ns = 0
        begin_ns = now_ns()
        for number, (first, last) in enumerate(zip(events[::2], events[1::2], strict=True)):
            if before is not None:
                flushes[2 * number].record()
                before()
                flushes[2 * number + 1].record()
            if stamps is not None:
                stamps.put()
            first.record()
            calls_begin_ns = now_ns()
            for call in calls:
                call()
            calls_end_ns = now_ns()
            last.record()
            if stamps is not None:
                stamps.put()
            if number < timed_count:
                calls_ns += calls_end_ns - calls_begin_ns
                all_ns = now_ns() - begin_ns
        return calls_ns / timed_count / 1e9, all_ns / timed_count / 1e9

    def _end_reading(self, plan: TimingPlan) -> float:
        """Measure the time to read the previous take's times; return the part during which the filler kept the GPU busy."""
        if self._taken is None or self._taken[0] is not plan:
            return 0.0
        reading_s = (self._now_ns() - self._taken[1]) / 1e9
        if reading_s > _READING_MOST_S:
            return 0.0
        self._readings_s[plan] = max(self._readings_s.get(plan, 0.0), reading_s)
        return min(self._filler_s, reading_s)

    def _fill(self, plan: TimingPlan) -> int:
        """Launch untimed entries, so that the GPU works while times are read; return their number.

        An idle GPU under a power cap would run the next entries faster than uninterrupted work.
        """
        reading_s, step_s = self._readings_s.get(plan, 0.0), self._steps_s.get(plan, 0.0)
        if not reading_s or not step_s or self._is_host_bound(plan):
            return 0
        count = int(reading_s / step_s) + 1
        for _ in range(count):
            if plan.before is not None:
                plan.before()
            for call in plan.entry():
                call()
        return count

    def _learn(self, plan: TimingPlan, calls_s: float, all_s: float, starts_s: Values) -> None:
        call = plan.calls[0]
        cost = self._costs.setdefault(id(call), _Cost(call, float("inf"), float("inf")))
        cost.call_s = min(cost.call_s, calls_s / plan.calls_count)
        cost.rest_s = min(cost.rest_s, all_s - calls_s)
        if len(starts_s) > 1:
            self._steps_s[plan] = min(self._steps_s.get(plan, float("inf")), float(np.median(np.diff(starts_s))))

    def _host_s(self, plan: TimingPlan) -> float | None:
        """Return the host time to launch an entry; None before the first take."""
        cost = self._costs.get(id(plan.calls[0]))
        return None if cost is None else cost.call_s * plan.calls_count + cost.rest_s

    def _is_host_bound(self, plan: TimingPlan) -> bool:
        host_s, step_s = self._host_s(plan), self._steps_s.get(plan)
        return host_s is not None and step_s is not None and host_s > _HOST_BOUND_RATIO * step_s

    def _size_count(self, plan: TimingPlan) -> int:
        if not self._is_host_bound(plan):
            return _ENTRIES_MOST_COUNT
        queued = _QUEUE_COUNT // _launches_count(plan)
        return max(1, min(queued, int(_HELD_MOST_S / max(self._host_s(plan) or 0.0, 1e-9))))

    def _events(self, count: int) -> list[Any]:
        while len(self._pool) < count:
            self._pool.append(self._cuda.Event(enable_timing=True))
        return self._pool[:count]

    def _hold(self, plan: TimingPlan, entries_count: int) -> bool:
        """Keep the GPU busy until the host is ahead; return True if the GPU is held."""
        sleep = getattr(self._cuda, "_sleep", None)  # a private function of torch, which a later torch may lack
        host_s = self._host_s(plan)
        if sleep is None or host_s is None:
            return False
        if self._is_host_bound(plan):
            hold_s = (entries_count + 1) * host_s
            # A hold that ends during an entry shortens the entry's time: hold all calls, or none.
            if hold_s > 2.0 * _HELD_MOST_S:
                return False
        else:
            hold_s = min(2.0 * _HELD_MOST_S, _HOLD_ENTRIES_COUNT * host_s)
        sleep(int(hold_s * _SPIN_HZ))
        return True


def _has_hold(other: OtherWork | None) -> bool:
    return other is not None and other.kinds[:1] == ("hold",)


def _launches_count(plan: TimingPlan) -> int:
    return plan.calls_count + _OWN_LAUNCHES_COUNT + (_FLUSH_EVENTS_COUNT if plan.before is not None else 0)


def _other_work(anchor: Any, anchor_ns: int, spans: Sequence[tuple[Any, Any]], *, is_held: bool) -> OtherWork | None:
    """Return the GPU's work between pairs of events, first the hold, if any, then the flushes; None without pairs."""
    if not spans:
        return None
    after_s = np.array([anchor.elapsed_time(first) if first is not anchor else 0.0 for first, _ in spans]) / 1e3
    took_s = np.array([first.elapsed_time(last) for first, last in spans]) / 1e3
    kinds = ("hold",) * is_held + ("flush",) * (len(spans) - is_held)
    return OtherWork(anchor_ns + (after_s * 1e9).astype(np.int64), took_s, kinds)


def _clocks(stamped: Stamped, entries_count: int) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if len(stamped.at_ns) < 2 * entries_count:
        return None
    numbers = 2 * np.arange(entries_count, dtype=np.int64)
    clocks = stamped.clocks_mhz(numbers, numbers + 1)
    return clocks if np.isfinite(clocks).any() else None


def _allocate_stamps() -> Stamps | None:
    with spared("preparing to stamp the true clock"):
        return Stamps.allocate(_STAMPS_COUNT)
    return None


def _cuda() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError("timing on a GPU needs torch, which is not installed; use timer='host'") from None
    if not torch.cuda.is_available():
        raise UsageError("timing on a GPU needs a GPU, and torch finds none; use timer='host'")
    torch.cuda.init()
    return torch.cuda
