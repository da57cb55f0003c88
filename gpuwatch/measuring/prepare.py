"""Before the first timed call: is the result right, what did the first call take, which cache is each call given?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpuwatch import timers
from gpuwatch.errors import UsageError, WrongResultError
from gpuwatch.measuring import bench_arguments, tensor_trees
from gpuwatch.measuring import cache as caches
from gpuwatch.measuring.batching import ENTRY_S, tried_s
from gpuwatch.measuring.environment import Seams
from gpuwatch.measuring.reference import Match, match
from gpuwatch.measuring.torch_device import TorchDevice
from gpuwatch.timers import Timer, TimingPlan

# Between two events of a held stream the shortest kernel takes 1.5 us more than nothing does; events tick by half of one.
_LEAST_KERNEL_S = 0.75e-6
_TRIES_COUNT = 2


def checked(fn: Callable[..., Any], args: tuple[Any, ...], reference: Any, rtol: float | None) -> Match | None:
    if reference is None:
        return None
    # Both get arguments of their own: a function that works in place would give the other its result.
    expected = reference(*tensor_trees.mapped(args, tensor_trees.copied)) if callable(reference) else reference
    found = match(fn(*tensor_trees.mapped(args, tensor_trees.copied)), expected, rtol)
    if not found.holds:
        raise WrongResultError(found.error_ratio, found.limit_ratio)
    return found


def first_call_s(fn: Callable[..., Any], args: tuple[Any, ...], now_ns: Callable[[], int]) -> float:
    """The first call sets libraries up, so that it takes long; by the host's clock, until its work is done.

    Where the function itself makes the first context on a GPU, that is known only after it.
    """
    begin_ns = now_ns()
    fn(*args)
    settle = timers.settle()
    if settle is not None:
        settle()
    return (now_ns() - begin_ns) / 1e9


@contextmanager
def chosen(timer: bench_arguments.TimerChoice, fn: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[tuple[Timer, float]]:
    """The timer asked for, and what it reads around nothing; where none was, one that sees the work."""
    if timer is not None and not isinstance(timer, str):
        yield timer, timer.overhead_s()
        return
    with timers.opened(timer) as found:
        overhead_s = found.overhead_s()
        if timer is not None or found.name == "host" or not saw_nothing(caches.warm(fn, args), found, overhead_s):
            yield found, overhead_s
            return
    with timers.opened("host") as found:
        yield found, found.overhead_s()


def saw_nothing(setting: caches.Setting, timer: Timer, overhead_s: float) -> bool:
    """Whether a GPU's timer reads of a call what it reads of nothing: then the work is the host's, or on another stream.

    Of calls the host takes more than some milliseconds for it cannot tell: events then read the host's time too.
    """
    plan = TimingPlan(calls=setting.calls[:1])
    # The second time the GPU is held until the host is done, so that the host's time does not show.
    timer.take(plan, _TRIES_COUNT)
    held = timer.take(plan, _TRIES_COUNT)
    return float(np.median(held.timings.took_s)) < overhead_s + _LEAST_KERNEL_S


def setting(
    fn: Callable[..., Any], arguments: list[tuple[Any, ...]], timer: Timer, cache: bench_arguments.Cache | None,
    board: TorchDevice | None, seams: Seams, *, given: bool,
) -> caches.Setting:  # fmt: skip
    if given:
        return caches.rotated(fn, arguments)
    if cache is None and timer.name == "host":
        return caches.Setting((caches.warm(fn, arguments[0]).calls), batches=True)
    if cache == "warm":
        return caches.warm(fn, arguments[0])
    if board is None:
        raise UsageError("cache='cold': no GPU whose cache could be emptied; use cache='warm'")
    flushed = caches.flushed(fn, arguments[0], *seams.flush(board.l2_bytes))
    # A long call needs no batch, and copies would only cost memory.
    if board.l2_bytes and tried_s(flushed, timer)[0] < ENTRY_S / 2:
        copies = caches.copies(arguments[0], board.l2_bytes)
        if copies is not None:
            return caches.rotated(fn, copies)
    return flushed
