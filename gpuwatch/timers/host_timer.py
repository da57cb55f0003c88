"""A timer by the host's clock, for host functions and for GPU work that the timer waits for."""

from collections.abc import Callable, Sequence

import numpy as np

from annotate.evidence import OtherWork, Timings
from gpuwatch import clock
from gpuwatch.process import torch_state
from gpuwatch.timers.timer_protocol import TimedEntries, TimingPlan, do_nothing

_OVERHEADS_COUNT = 200


class HostTimer:
    """A timer that reads the monotonic clock before and after an entry; ``settle`` waits for the GPU work of the calls."""

    name = "host"

    def __init__(self, settle: Callable[[], object] = do_nothing, now_ns: Callable[[], int] = clock.now_ns) -> None:
        self._settle = settle
        self._now_ns = now_ns

    def overhead_s(self) -> float:
        return float(np.median(self.take(TimingPlan(calls=(do_nothing,)), _OVERHEADS_COUNT).timings.took_s))

    def rest(self) -> None:
        self._settle()

    def take(self, plan: TimingPlan, entries_count: int) -> TimedEntries:
        settle, now_ns, calls = self._settle, self._now_ns, plan.entry()
        at_ns = np.empty(entries_count, np.int64)
        took_ns = np.empty(entries_count, np.int64)
        flushes_ns: list[tuple[int, int]] = []
        for number in range(entries_count):
            before_ns = now_ns()
            if plan.before is not None:
                plan.before()
            settle()
            begin_ns = now_ns()
            if plan.before is not None:
                flushes_ns.append((before_ns, begin_ns))
            for call in calls:
                call()
            settle()
            took_ns[number] = now_ns() - begin_ns
            at_ns[number] = begin_ns
        times = Timings(at_ns, took_ns / 1e9 / len(calls), None, len(calls))
        return TimedEntries(times, other=_flushes(flushes_ns))


def _flushes(spans_ns: Sequence[tuple[int, int]]) -> OtherWork | None:
    if not spans_ns:
        return None
    begins_ns, ends_ns = np.array(spans_ns, np.int64).T
    return OtherWork(begins_ns.copy(), (ends_ns - begins_ns) / 1e9, ("flush",) * len(spans_ns))


def settle() -> Callable[[], None]:
    """Return torch's synchronisation if this process has a context on a GPU, else a function that does nothing."""
    cuda = torch_state.cuda_with_context()
    return do_nothing if cuda is None else cuda.synchronize
