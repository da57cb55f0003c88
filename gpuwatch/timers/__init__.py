"""Three timers for a call: CUDA events, events around a captured graph, and the host's clock."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from gpuwatch.process import torch_state
from gpuwatch.timers.host_timer import HostTimer, settle
from gpuwatch.timers.timer_protocol import Call, TimedEntries, Timer, TimingPlan, joined

NAMES = ("events", "graph", "host")


@contextmanager
def opened(name: str | None) -> Iterator[Timer]:
    """Yield the timer of this name; None means events if this process has a context on a GPU, else the host's clock.

    The timer releases its memory on the GPU at the end.
    Raises UsageError: for a GPU's timer without torch or a GPU.
    """
    if name is None:
        name = "events" if torch_state.cuda_with_context() is not None else "host"
    if name == "host":
        yield HostTimer(settle())
        return
    from gpuwatch.timers.event_timer import EventsTimer
    from gpuwatch.timers.graph_timer import GraphTimer

    with closing(EventsTimer()) as events:
        yield events if name == "events" else GraphTimer(events)


__all__ = ["NAMES", "Call", "HostTimer", "TimedEntries", "Timer", "TimingPlan", "joined", "opened", "settle"]
