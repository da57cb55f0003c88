"""Timer of captured CUDA graphs: launches without the host, for kernels shorter than their launch."""

from collections.abc import Callable
from typing import Any

from annotate.evidence import Timings
from gpuwatch.errors import UsageError
from gpuwatch.timers.event_timer import EventsTimer
from gpuwatch.timers.timer_protocol import Call, TimedEntries, TimingPlan


class GraphTimer:
    """A timer that captures an entry's calls once and times its replays by events.

    The host's part of a call happens at the capture, not at a replay.
    """

    name = "graph"

    def __init__(self, events: EventsTimer | None = None, capture: Callable[[TimingPlan], Call] | None = None) -> None:
        self._events = events or EventsTimer()
        self._capture = capture or capture_entry
        self._graphs: dict[TimingPlan, TimingPlan] = {}

    def overhead_s(self) -> float:
        return self._events.overhead_s()

    def rest(self) -> None:
        self._events.rest()

    def take(self, plan: TimingPlan, entries_count: int) -> TimedEntries:
        if plan not in self._graphs:
            self._graphs[plan] = TimingPlan(calls=(self._capture(plan),), before=plan.before)
        taken = self._events.take(self._graphs[plan], entries_count)
        times, count = taken.timings, plan.calls_count
        issue_s = None if taken.issue_s is None else taken.issue_s / count
        return TimedEntries(
            Timings(times.at_ns, times.took_s / count, times.sm_clock_mhz, count),
            issue_s,
            taken.busy_s,
            taken.other,
            taken.starved_count,
        )


def capture_entry(plan: TimingPlan) -> Call:
    """Capture an entry's calls and return their replay.

    Raises UsageError: when a capture does not allow the calls.
    """
    import torch

    # Libraries initialise themselves at their first call, which a capture does not allow.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in plan.calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for call in plan.entry():
                call()
    except RuntimeError as error:
        if "captur" not in str(error).lower():
            raise
        _end_capture(torch)
        reason = str(error).splitlines()[0]
        raise UsageError(f"timer='graph': the function cannot be captured ({reason}); use timer='events'") from error
    replay: Call = graph.replay
    return replay


def _end_capture(torch: Any) -> None:  # torch is not a dependency, so it has no type here
    """Run a successful capture: after a failed capture, torch's random generator still assumes a capture."""
    nothing = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        nothing.add_(0)
