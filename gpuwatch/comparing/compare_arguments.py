"""The arguments of compare(), and one error line for each invalid argument."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from gpuwatch.client.window_tags import check_tags
from gpuwatch.comparing.blocks import BlockTimer
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.measuring import bench_arguments
from gpuwatch.measuring.environment import BenchEnvironment

Variant = Callable[..., object]
Inputs = Sequence[Any] | Callable[..., Sequence[Any]]
CheckInputs = Sequence[Sequence[Any]] | Callable[..., Sequence[Sequence[Any]]]
_DEFERRED = (inspect.iscoroutine, inspect.isgenerator, inspect.isasyncgen)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """All arguments of one compare() call, under the same names."""

    arms: Mapping[str, Variant]
    inputs: Inputs
    reference: str | None
    seconds: float
    warm_s: float | None
    block_s: float
    own_steady: bool
    own_s: float
    rounds_count: int
    check: bool
    tolerance_ratio: float | None  # the former name of rtol
    buffers_count: int
    floor_ratio: float | None
    seed: int
    label: str | None
    watch: bool
    timer: BlockTimer | None
    settings: Settings | None
    say: Callable[[str], None] | None
    tolerance: float
    cache: bench_arguments.Cache | None
    rtol: float | None
    check_inputs: CheckInputs
    tags: Mapping[str, str | float] | None
    seams: BenchEnvironment | None

    @property
    def variants(self) -> Mapping[str, Variant]:
        return self.arms

    @property
    def environment(self) -> BenchEnvironment:
        return self.seams or BenchEnvironment()

    @property
    def names(self) -> list[str]:
        """Return the names of the variants, the reference first."""
        first = self.reference if self.reference is not None else next(iter(self.variants))
        return [first, *(name for name in self.variants if name != first)]


def checked(request: CompareRequest) -> CompareRequest:
    """Return the request with plain numbers.

    Raises UsageError: when an argument is invalid.
    """
    _check_variants(request.variants)
    _check_choices(request)
    return replace(
        request,
        seconds=bench_arguments.amount("compare: seconds", request.seconds),
        warm_s=bench_arguments.amount_or_none("compare: warm_s", request.warm_s, zero=True),
        block_s=bench_arguments.amount("compare: block_s", request.block_s),
        own_s=bench_arguments.amount("compare: own_s", request.own_s),
        rounds_count=_count("rounds_count", request.rounds_count, least=2),  # one round gives no interval
        tolerance=_tolerance(request.tolerance),
        rtol=_rtol(request),
        buffers_count=_count("buffers_count", request.buffers_count, least=1),
        floor_ratio=bench_arguments.amount_or_none("compare: floor_ratio", request.floor_ratio, zero=True),
        seed=int(request.seed),
        tags=check_tags(request.tags, doing="compare: tags"),
    )


def _rtol(request: CompareRequest) -> float | None:
    if request.rtol is not None and request.tolerance_ratio is not None:
        raise UsageError("compare: tolerance_ratio: expected only rtol, the current name, found both")
    earlier = bench_arguments.amount_or_none("compare: tolerance_ratio", request.tolerance_ratio, zero=True)
    return earlier if request.rtol is None else bench_arguments.amount("compare: rtol", request.rtol, zero=True)


def _tolerance(value: object) -> float:
    tolerance = bench_arguments.amount("compare: tolerance", value)
    if tolerance >= 1:
        raise UsageError(f"compare: tolerance: expected a share between 0 and 1, as 0.005 for 0.5 %, found {value!r}")
    return tolerance


def _check_variants(variants: object) -> None:
    if not isinstance(variants, Mapping):
        raise UsageError(f"compare: expected functions by name, {{'old': f, 'new': g}}, found {type(variants).__name__}")
    if len(variants) < 2:
        raise UsageError(f"compare: expected two functions or more, found {len(variants)}")
    for name, variant in variants.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"compare: expected a name for each function, found {name!r}")
        if not callable(variant):
            raise UsageError(f"compare: {name}: expected a function, found {variant!r}")
        if bench_arguments.defers_work(variant):
            raise _deferred(name)


def _check_choices(request: CompareRequest) -> None:
    reference, label, settings, timer, seed = request.reference, request.label, request.settings, request.timer, request.seed
    if reference is not None and not (isinstance(reference, str) and reference in request.variants):
        raise UsageError(f"compare: reference: expected one of {', '.join(request.variants)}, found {reference!r}")
    if label is not None and not isinstance(label, str):
        raise UsageError(f"compare: label: expected text, found {label!r}")
    if settings is not None and not isinstance(settings, Settings):
        raise UsageError(f"compare: settings: expected gpuwatch.config.settings.Settings, found {settings!r}")
    if timer is not None and not hasattr(timer, "times"):
        raise UsageError(f"compare: timer: expected a timer of blocks, or None for the default timer, found {timer!r}")
    if request.cache not in (None, "cold", "warm"):
        raise UsageError(f"compare: cache: expected 'cold' or 'warm', found {request.cache!r}")
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise UsageError(f"compare: seed: expected a whole number, found {seed!r}")


def checked_inputs(inputs: object, *, name: str = "inputs") -> tuple[Any, ...]:
    """Return the arguments of each call, given as a list or tuple.

    Raises UsageError: for any other type, such as a bare tensor, whose rows would count as arguments.
    """
    if not isinstance(inputs, list | tuple):
        raise UsageError(
            f"compare: {name}: expected a tuple of arguments, as (x,) for a single one, found {type(inputs).__name__}"
        )
    return tuple(inputs)


def check_result(name: str, result: object) -> None:
    """Check a result.

    Raises UsageError: when the result is a coroutine or generator, which has done no work yet.
    """
    if any(is_kind(result) for is_kind in _DEFERRED):
        if inspect.iscoroutine(result):
            result.close()  # close it, or Python warns about a coroutine that was never awaited
        raise _deferred(name)


def _deferred(name: str) -> UsageError:
    return UsageError(
        f"compare: {name}: expected a function that does its work when it is called, found a coroutine or generator function"
    )


def _count(name: str, value: object, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise UsageError(f"compare: {name}: expected a count of at least {least}, found {value!r}")
    return int(value)
