"""The checked arguments of bench()."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from annotate.claims import Claim
from annotate.times.reference_clock import ReferenceClock
from annotate.user_policy import Policy
from gpuwatch import timers
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.timers import Timer
from gpuwatch.wire.messages import LABEL_LENGTH

Cache = Literal["cold", "warm"]
TimerChoice = Literal["events", "graph", "host"] | Timer | None
_DEFERRING = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_DTYPE = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Work:
    """The function to time, its sets of arguments, and the check of its result."""

    fn: Callable[..., Any]
    inputs: list[tuple[Any, ...]]
    is_rotated: bool  # the caller gave the sets with rotate=
    reference: Any
    rtol: float | None
    check_inputs: bool

    @classmethod
    def checked(
        cls, fn: Callable[..., Any], args: object, rotate: object, reference: Any, rtol: object, *, check_inputs: bool
    ) -> Work:
        """Return the checked work.

        Raises UsageError: when an argument is invalid, or both args and rotate are given.
        """
        check_function(fn, "bench")
        if not isinstance(args, tuple | list):
            raise UsageError(f"args: expected a tuple of arguments, found {type(args).__name__}")
        limit_ratio = amount_or_none("rtol", rtol, zero=True)
        if rotate is None:
            return cls(fn, [tuple(args)], is_rotated=False, reference=reference, rtol=limit_ratio, check_inputs=check_inputs)
        if args:
            raise UsageError("rotate: expected either args or rotate, found both")
        if not isinstance(rotate, Sequence) or not rotate or not all(isinstance(one, tuple | list) for one in rotate):
            raise UsageError("rotate: expected a list of tuples of arguments, one tuple per call")
        inputs = [tuple(one) for one in rotate]
        return cls(fn, inputs, is_rotated=True, reference=reference, rtol=limit_ratio, check_inputs=check_inputs)

    @property
    def args(self) -> tuple[Any, ...]:
        return self.inputs[0]


@dataclass(frozen=True, slots=True)
class CallCost:
    """The floating-point operations and bytes of one call, and its data type."""

    flops_count: float | None
    bytes_count: float | None
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of warm-up, measurement, interval and retries."""

    min_s: float | None  # None: the time follows from the clock's behaviour
    max_s: float
    target_ratio: float
    warmup_max_s: float
    retries_count: int

    @classmethod
    def checked(cls, min_s: object, max_s: object, target_ratio: object, warmup_max_s: object, retries: object) -> Limits:
        """Return the checked limits.

        Raises UsageError: when a limit is invalid, or ``min_s`` exceeds ``max_s``.
        """
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise UsageError(f"retries: expected a count of at least 0, found {retries!r}")
        limits = cls(
            amount_or_none("min_s", min_s),
            amount("max_s", max_s),
            amount("target_ratio", target_ratio),
            amount("warmup_max_s", warmup_max_s, zero=True),
            retries,
        )
        if limits.target_ratio >= 1:
            expected = "a share between 0 and 1, as 0.005 for 0.5 %"
            raise UsageError(f"target_ratio: expected {expected}, found {target_ratio!r}")
        if limits.min_s is not None and limits.min_s > limits.max_s:
            raise UsageError(f"min_s: expected at most max_s ({limits.max_s:g}), found {limits.min_s:g}")
        return limits


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """The arguments of one bench() call; the window checks claim, policy, clock and settings."""

    work: Work
    cost: CallCost
    limits: Limits
    timer: TimerChoice
    cache: Cache | None
    label: str
    claim: Claim | str
    policy: Policy | None
    reference_clock: ReferenceClock | None
    settings: Settings | None
    progress: bool | None
    tags: Mapping[str, str]


def check_function(fn: object, caller: str) -> None:
    """Check the function to time.  Raises UsageError: for other values, and for a function that does its work later."""
    if not callable(fn):
        arguments = ", and its arguments as args=(...)" if caller == "bench" else ""
        raise UsageError(f"{caller}: expected a function, found {fn!r}; give the function itself{arguments}")
    if defers_work(fn):
        raise UsageError(
            f"{caller}: expected a function that does its work when it is called, found a coroutine or generator function"
        )


def defers_work(fn: object) -> bool:
    """Return True if a call only creates a coroutine or a generator, and does no work."""
    return any(is_kind(fn) or is_kind(getattr(fn, "__call__", None)) for is_kind in _DEFERRING)  # noqa: B004 - its function is read


def check_choices(timer: TimerChoice, cache: Cache | None) -> None:
    """Check timer and cache.

    Raises UsageError: when the timer is neither a known name nor a timer, or the cache mode is unknown.
    """
    if isinstance(timer, str) and timer not in timers.NAMES:
        raise UsageError(f"timer: expected one of {', '.join(timers.NAMES)}, found {timer!r}")
    if timer is not None and not isinstance(timer, str) and not hasattr(timer, "take"):
        raise UsageError(f"timer: expected a name or a timer, found {timer!r}")
    if cache not in (None, "cold", "warm"):
        raise UsageError(f"cache: expected 'cold' or 'warm', found {cache!r}")


def amount(name: str, value: object, *, zero: bool = False) -> float:
    """Return a finite number above zero, or zero if allowed, as a float.

    Raises UsageError: for any other value.
    """
    wanted = "a number of at least 0" if zero else "a number above 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(f"{name}: expected {wanted}, found {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise UsageError(f"{name}: expected {wanted}, found {value!r}")
    return number


def amount_or_none(name: str, value: object, *, zero: bool = False) -> float | None:
    """Return the number as ``amount`` does, or None for None."""
    return None if value is None else amount(name, value, zero=zero)


def dtype_name(dtype: object) -> str | None:
    """Return the name of a data type given as text or as an object of torch or numpy; None for None.

    Raises UsageError: for a value without the form of a data type's name.
    """
    if dtype is None:
        return None
    # torch.float16, np.dtype("float16"), and np.float16, which is a class.
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(text).removeprefix("torch.")
    if isinstance(dtype, int | float) or not _DTYPE.fullmatch(name):
        raise UsageError(f"dtype: expected a data type as 'bfloat16', found {dtype!r}")
    return name


def label_for(fn: Callable[..., Any], label: str | None) -> str:
    """Return the label, or the function's name without one.

    Raises UsageError: when the label is not text.
    """
    if label is not None and not isinstance(label, str):
        raise UsageError(f"label: expected text, found {label!r}")
    return label or str(getattr(fn, "__name__", None) or type(fn).__name__)[:LABEL_LENGTH]
