"""The steps before the first timed call: check the result, time the first call, choose the timer and the cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpuwatch import timers
from gpuwatch.errors import UsageError, WrongResultError
from gpuwatch.measuring import cache, tensor_trees
from gpuwatch.measuring.batching import ENTRY_S, try_call
from gpuwatch.measuring.bench_arguments import BenchRequest, CallCost, TimerChoice, Work
from gpuwatch.measuring.cache import CacheSetting
from gpuwatch.measuring.environment import BenchEnvironment, TorchDevice
from gpuwatch.measuring.reference import Match, match_results, output_unchanged
from gpuwatch.timers import Call, Timer, TimingPlan
from gpuwatch.wire.messages import FactValue

# Below the shortest kernel's time between two events of a held stream; events have steps of 0.5 µs.
_LEAST_KERNEL_S = 0.75e-6
_TRIES_COUNT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkChecks:
    """The results of the calls made before the timed entries."""

    match: Match | None
    is_output_unchanged: bool | None  # when the inputs changed
    first_call_s: float | None  # None: an earlier call checked the result or the inputs
    cost: CallCost  # with the inputs' data type if the caller named none

    @property
    def facts(self) -> dict[str, FactValue]:
        found: dict[str, FactValue | None] = {
            "dtype": self.cost.dtype,
            "call_flops_count": self.cost.flops_count,
            "call_bytes": self.cost.bytes_count,
            "output_unchanged": self.is_output_unchanged,
            "reference_error_ratio": self.match.error_ratio if self.match else None,
            "reference_limit_ratio": self.match.limit_ratio if self.match else None,
        }
        return {name: value for name, value in found.items() if value is not None}


def check_work(request: BenchRequest, now_ns: Callable[[], int]) -> WorkChecks:
    """Check the result, detect a cached result, and time the first call.

    Raises WrongResultError: when the result differs from the reference.
    Raises UsageError: when a result cannot be compared, or inputs cannot be changed.
    """
    work = request.work
    match = _check_result(work)
    is_unchanged = output_unchanged(work.fn, work.args) if work.check_inputs else None
    first_call_s = _first_call_s(work, now_ns)
    return WorkChecks(
        match=match,
        is_output_unchanged=is_unchanged,
        first_call_s=None if match or work.check_inputs else first_call_s,
        cost=replace(request.cost, dtype=request.cost.dtype or tensor_trees.dtype_name(work.args)),
    )


def _check_result(work: Work) -> Match | None:
    reference = work.reference
    if reference is None:
        return None
    # Function and reference get separate copies, because a function may change its arguments in place.
    expected = reference(*tensor_trees.mapped(work.args, tensor_trees.copied)) if callable(reference) else reference
    found = match_results(work.fn(*tensor_trees.mapped(work.args, tensor_trees.copied)), expected, work.rtol)
    if not found.holds:
        raise WrongResultError(found.error_ratio, found.limit_ratio)
    return found


def _first_call_s(work: Work, now_ns: Callable[[], int]) -> float:
    """Time the first call by the host's clock until its work is done; this call also initialises libraries.

    The function itself may create the first context on a GPU, so the context is looked up after the call.
    """
    begin_ns = now_ns()
    work.fn(*work.args)
    timers.settle()()
    return (now_ns() - begin_ns) / 1e9


@contextmanager
def open_timer(choice: TimerChoice, work: Work) -> Iterator[tuple[Timer, float]]:
    """Yield the chosen timer and its overhead; without a choice, a timer that can measure the work.

    Raises UsageError: as ``timers.opened``.
    """
    if choice is not None and not isinstance(choice, str):
        yield choice, choice.overhead_s()
        return
    with timers.opened(choice) as found:
        overhead_s = found.overhead_s()
        if choice is not None or found.name == "host" or not is_invisible(partial(work.fn, *work.args), found, overhead_s):
            yield found, overhead_s
            return
    with timers.opened("host") as found:
        yield found, found.overhead_s()


def is_invisible(call: Call, timer: Timer, overhead_s: float) -> bool:
    """Return True if a GPU's timer reads the same for a call as for no work, because the host or another stream works.

    Return False for a call that takes the host more than some milliseconds: events then read the host's time too.
    """
    plan = TimingPlan(calls=(call,))
    # In the second take the GPU is held until the host is done, so that events do not read the host's time.
    timer.take(plan, _TRIES_COUNT)
    held = timer.take(plan, _TRIES_COUNT)
    return float(np.median(held.timings.took_s)) < overhead_s + _LEAST_KERNEL_S


def choose_cache(request: BenchRequest, timer: Timer, gpu: TorchDevice | None, environment: BenchEnvironment) -> CacheSetting:
    """Choose the calls to time and the work between them.

    Raises UsageError: when there is no cache to empty, or the cache's size is unknown.
    """
    work = request.work
    if work.is_rotated:
        return cache.rotated_setting(work.fn, work.inputs)
    warm = cache.warm_setting(work.fn, work.args)
    if request.cache == "warm":
        return warm
    if request.cache is None and timer.name == "host":
        return CacheSetting(warm.calls, batches=True)
    if gpu is None:
        raise UsageError("cache='cold': expected a GPU whose cache can be emptied, found none; use cache='warm'")
    flushed = cache.flushed_setting(work.fn, work.args, *environment.flush(gpu.l2_bytes))
    # A long call needs no batch, and copies would only use memory.
    if gpu.l2_bytes and try_call(flushed, timer)[0] < ENTRY_S / 2:
        copies = cache.copy_inputs(work.args, gpu.l2_bytes)
        if copies is not None:
            return cache.rotated_setting(work.fn, copies)
    return flushed
