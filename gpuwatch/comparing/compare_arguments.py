"""What compare() was asked for: one clear line for what can never be right, before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.measuring import bench_arguments

Arm = Callable[..., object]
_MAKING = (inspect.iscoroutine, inspect.isgenerator, inspect.isasyncgen)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """The settings of a comparison, checked."""

    reference: str
    seconds: float
    warm_s: float
    block_s: float
    own_s: float
    rounds_count: int
    tolerance_ratio: float | None
    buffers_count: int
    floor_ratio: float | None
    seed: int


def checked(
    arms: object,
    *,
    reference: object,
    seconds: object,
    warm_s: object,
    block_s: object,
    own_s: object,
    rounds_count: object,
    tolerance_ratio: object,
    buffers_count: object,
    floor_ratio: object,
    seed: object,
    timer: object,
    label: object,
    settings: object,
) -> CompareRequest:
    """Raises UsageError."""
    named = check_arms(arms)
    if reference is not None and not (isinstance(reference, str) and reference in named):
        raise UsageError(f"compare: reference: expected one of {', '.join(named)}, found {reference!r}")
    if label is not None and not isinstance(label, str):
        raise UsageError(f"compare: label: expected text, found {label!r}")
    if settings is not None and not isinstance(settings, Settings):
        raise UsageError(f"compare: settings: expected gpuwatch.config.settings.Settings, found {settings!r}")
    if timer is not None and not hasattr(timer, "times"):
        raise UsageError(f"compare: timer: expected a timer of blocks, or None for the one that fits, found {timer!r}")
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise UsageError(f"compare: seed: expected a whole number, found {seed!r}")
    return CompareRequest(
        reference=reference if reference is not None else next(iter(named)),
        seconds=bench_arguments.amount("compare: seconds", seconds),
        warm_s=bench_arguments.amount("compare: warm_s", warm_s, zero=True),
        block_s=bench_arguments.amount("compare: block_s", block_s),
        own_s=bench_arguments.amount("compare: own_s", own_s),
        rounds_count=_count("rounds_count", rounds_count, least=2),  # of fewer there is no interval
        tolerance_ratio=bench_arguments.amount_or_none("compare: tolerance_ratio", tolerance_ratio, zero=True),
        buffers_count=_count("buffers_count", buffers_count, least=1),
        floor_ratio=bench_arguments.amount_or_none("compare: floor_ratio", floor_ratio, zero=True),
        seed=int(seed),
    )


def check_arms(arms: object) -> Mapping[str, Arm]:
    """Functions by name.  Raises UsageError."""
    if not isinstance(arms, Mapping):
        raise UsageError(f"compare: expected functions by name, {{'old': f, 'new': g}}, found {type(arms).__name__}")
    if len(arms) < 2:
        raise UsageError(f"compare: expected two functions or more, found {len(arms)}")
    for name, arm in arms.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"compare: expected a name for each function, found {name!r}")
        if not callable(arm):
            raise UsageError(f"compare: {name}: expected a function, found {arm!r}")
        if bench_arguments.defers_work(arm):
            raise _only_made(name)
    return arms


def arguments(inputs: object, *, of: str = "inputs") -> tuple[Any, ...]:
    """What each call is given.  Raises UsageError: a tensor alone would be taken apart into its rows."""
    if not isinstance(inputs, list | tuple):
        raise UsageError(
            f"compare: {of}: expected a tuple of arguments, as (x,) for a single one, found {type(inputs).__name__}"
        )
    return tuple(inputs)


def check_result(name: str, result: object) -> None:
    """Raises UsageError for what only begins to work when it is awaited or iterated: its making is no time of an arm."""
    if any(is_kind(result) for is_kind in _MAKING):
        if inspect.iscoroutine(result):
            result.close()  # never to be awaited, and not to be warned about
        raise _only_made(name)


def _only_made(name: str) -> UsageError:
    return UsageError(
        f"compare: {name}: expected a function that does its work when it is called; a call of a coroutine or a generator only makes it"
    )


def _count(name: str, value: object, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise UsageError(f"compare: {name}: expected how many, at least {least}, found {value!r}")
    return int(value)
