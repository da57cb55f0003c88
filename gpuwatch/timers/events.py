"""Times by CUDA events on the current stream: what the GPU took, the true clock beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from annotate.evidence import Timings
from gpuwatch import clock
from gpuwatch.cuda.stamp import Stamped, Stamps
from gpuwatch.errors import UsageError
from gpuwatch.timers.protocol import Plan, Taken

_OVERHEADS_COUNT = 100
_STAMPS_COUNT = 8192
# The GPU is held by a kernel that spins until the host has asked for enough: a call that waits for its own launch is
# timed as long as the launch takes.  A longer hold would show in the power drawn.
_HOLD_MOST_S = 0.02
_HOLD_ENTRIES_COUNT = 3
_SPIN_HZ = 2e9


class EventsTimer:
    """An event before and after each entry, read when all are done; stamps outside them."""

    name = "events"

    def __init__(self, stamps: Stamps | None = None) -> None:
        self._cuda = _cuda("events")
        self._stamps = stamps if stamps is not None else Stamps.here(_STAMPS_COUNT)
        self._pool: list[Any] = []  # torch has no types
        self._costs: dict[Plan, tuple[float, float]] = {}  # a plan's last: host and GPU seconds an entry

    def overhead_s(self) -> float:
        plan = Plan(calls=(_nothing,))
        self.take(plan, _HOLD_ENTRIES_COUNT)
        return float(np.median(self.take(plan, _OVERHEADS_COUNT).timings.took_s))

    def take(self, plan: Plan, entries_count: int) -> Taken:
        cuda, stamps, calls, before = self._cuda, self._stamps, plan.entry(), plan.before
        anchor, *events = self._events(2 * entries_count + 1)
        if stamps is not None and 2 * entries_count > stamps.count:
            stamps = None
        # Not the stream alone: work on others would share the GPU with the first entries.
        cuda.synchronize()
        if stamps is not None:
            stamps.clear()
        anchor.record()
        anchor_ns = clock.now_ns()
        self._hold(plan, entries_count)
        begin_ns = clock.now_ns()
        for first, last in zip(events[::2], events[1::2], strict=True):
            if before is not None:
                before()
            if stamps is not None:
                stamps.put()
            first.record()
            for call in calls:
                call()
            last.record()
            if stamps is not None:
                stamps.put()
        issue_s = (clock.now_ns() - begin_ns) / 1e9 / entries_count
        cuda.current_stream().synchronize()
        starts_s = np.array([anchor.elapsed_time(first) for first in events[::2]]) / 1e3
        took_s = np.array([first.elapsed_time(last) for first, last in zip(events[::2], events[1::2], strict=True)]) / 1e3
        # A host far ahead waits for room in the queue, so only its quickest round tells what it needs.
        known_s = min(issue_s, self._costs.get(plan, (issue_s, 0.0))[0])
        self._costs[plan] = (known_s, float(np.median(np.diff(starts_s))) if entries_count > 1 else float(took_s[0]))
        clocks = None if stamps is None else _clocks(stamps.read(), entries_count)
        at_ns = anchor_ns + (starts_s * 1e9).astype(np.int64)
        return Taken(Timings(at_ns, took_s / len(calls), clocks, len(calls)), known_s / len(calls))

    def _events(self, count: int) -> list[Any]:
        while len(self._pool) < count:
            self._pool.append(self._cuda.Event(enable_timing=True))
        return self._pool[:count]

    def _hold(self, plan: Plan, entries_count: int) -> None:
        sleep = getattr(self._cuda, "_sleep", None)  # torch's own tests spin with it; it may go
        if sleep is None or plan not in self._costs:
            return
        host_s, gpu_s = self._costs[plan]
        behind_s = max(0.0, host_s - gpu_s) * entries_count
        sleep(int(min(_HOLD_MOST_S, _HOLD_ENTRIES_COUNT * host_s + 1.2 * behind_s) * _SPIN_HZ))


def _clocks(stamped: Stamped, entries_count: int) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if len(stamped.at_ns) < 2 * entries_count:
        return None
    numbers = 2 * np.arange(entries_count, dtype=np.int64)
    clocks = stamped.clocks_mhz(numbers, numbers + 1)
    return clocks if np.isfinite(clocks).any() else None


def _cuda(name: str) -> Any:
    """torch.cuda.  Raises UsageError where there is no torch or no GPU."""
    try:
        import torch
    except ImportError:
        raise UsageError(f"timer={name!r} needs torch, which is not installed; use timer='host'") from None
    if not torch.cuda.is_available():
        raise UsageError(f"timer={name!r} needs a GPU, and torch sees none; use timer='host'")
    torch.cuda.init()
    return torch.cuda


def _nothing() -> None:
    """The work that takes no time."""
