"""The timed half of a comparison: counters, rooflines and reasons for each pair of kernels that was timed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gpuwatch.clock import MonotonicClock
from gpuwatch.diff.collect_counters import RunningPair, collect
from gpuwatch.diff.counter_permission import Asked, CounterPermission
from gpuwatch.diff.explained_pair import explain_pair
from gpuwatch.diff.kernel_roofline import read_peaks
from gpuwatch.diff.run_diff import Diff
from gpuwatch.diff.simulated_pair import simulate
from gpuwatch.diff.timed_pair import TimedPair
from gpuwatch.interfaces import Source
from gpuwatch.measuring import canary_record
from gpuwatch.sources import open_source


def explain_diff(
    found: Diff,
    timed: Sequence[tuple[TimedPair, RunningPair]],
    permission: CounterPermission,
    asked: Asked,
    state: Path,
    say: Callable[[str], None],
) -> Diff:
    """Return a comparison with its times explained; counters are read after all times.

    Raises UsageError: when counters are required and cannot be had.
    """
    explained = []
    for (pair, running), static in zip(timed, found.comparisons, strict=True):
        counters = collect(running, permission, asked, _open_driver, say)
        peaks = read_peaks(running.device, canary_record.facts(state, running.device.uuid))
        explained.append(explain_pair(pair, static, counters, peaks))
    return replace(found, explained=tuple(explained))


def simulate_diff(found: Diff) -> Diff:
    """Return a comparison with the times of a simulated H200."""
    source = open_source("simulated", MonotonicClock())
    device = source.devices()[0]
    source.close()
    peaks = read_peaks(device, {})
    pairs = ((*simulate(static, device), static) for static in found.comparisons)
    return replace(found, explained=tuple(explain_pair(timed, static, counters, peaks) for timed, counters, static in pairs))


def _open_driver() -> Source:
    return open_source("nvml", MonotonicClock())
