"""The reasons behind times: counters, rooflines and differences of each pair of kernels that was timed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpuwatch.clock import MonotonicClock
from gpuwatch.diff.collect_counters import RunningPair, collect
from gpuwatch.diff.counter_permission import Asked, CounterPermission
from gpuwatch.diff.explained_pair import ExplainedPair, explain_pair
from gpuwatch.diff.kernel_counters import Counters
from gpuwatch.diff.kernel_roofline import read_peaks
from gpuwatch.diff.run_diff import Diff
from gpuwatch.diff.simulated_pair import simulate
from gpuwatch.diff.static_comparison import StaticComparison
from gpuwatch.diff.timed_pair import TimedPair
from gpuwatch.errors import SourceError
from gpuwatch.interfaces import Source
from gpuwatch.measuring import canary_record
from gpuwatch.sources import open_source


def explain_timed(
    timed: TimedPair,
    running: RunningPair,
    static: StaticComparison | None,
    *,
    permission: CounterPermission,
    asked: Asked,
    state: Path,
    say: Callable[[str], None],
) -> ExplainedPair:
    """Explain one timed pair, whose counters are read after its times; ``static`` is None for Python functions.

    Raises UsageError: when counters are required and cannot be had.
    """
    if timed.a is None:  # it must not run again
        return explain_pair(timed, static, Counters("none", "none: nothing was timed"), None)
    try:
        device = running.device
    except SourceError as error:
        return explain_pair(timed, static, Counters("none", f"none: {error}"), None)
    counters = collect(running, permission, asked, _open_driver, say)
    return explain_pair(timed, static, counters, read_peaks(device, canary_record.facts(state, device.uuid)))


def simulate_diff(found: Diff) -> Diff:
    """Return a comparison with the times of a simulated H200."""
    source = open_source("simulated", MonotonicClock())
    device = source.devices()[0]
    source.close()
    pairs = ((*simulate(static, device), static) for static in found.comparisons)
    peaks = read_peaks(device, {})
    return replace(found, explained=tuple(explain_pair(timed, static, counters, peaks) for timed, counters, static in pairs))


def _open_driver() -> Source:
    return open_source("nvml", MonotonicClock())
