"""What was asked for: one clear line for what can never be right, before anything runs."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Literal

from gpuwatch import timers
from gpuwatch.errors import UsageError
from gpuwatch.timers import Timer
from gpuwatch.wire.messages import LABEL_LENGTH

_NOT_RUN = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_DTYPE = re.compile(r"[a-z][a-z0-9_]*")


def check_call(fn: object, args: object, rotate: object) -> None:
    if not callable(fn):
        raise UsageError(f"bench: expected a function, found {fn!r}; give the function itself, and its arguments as args=(...)")
    if only_makes(fn):
        raise UsageError(
            "bench: expected a function that does its work when it is called; a call of a coroutine or a generator only makes it"
        )
    if not isinstance(args, tuple | list):
        raise UsageError(f"args: expected a tuple of arguments, found {type(args).__name__}")
    if rotate is None:
        return
    if args:
        raise UsageError("rotate: expected instead of args, found both")
    if not isinstance(rotate, Sequence) or not rotate or not all(isinstance(one, tuple | list) for one in rotate):
        raise UsageError("rotate: expected a list of tuples of arguments, one tuple a call")


def only_makes(fn: object) -> bool:
    """Whether a call of it makes a coroutine or a generator, and does no work."""
    return any(is_kind(fn) or is_kind(getattr(fn, "__call__", None)) for is_kind in _NOT_RUN)  # noqa: B004 - its function is asked


def check_choices(timer: object, cache: object, retries: object) -> None:
    if isinstance(timer, str) and timer not in timers.NAMES:
        raise UsageError(f"timer: expected one of {', '.join(timers.NAMES)}, found {timer!r}")
    if timer is not None and not isinstance(timer, str) and not hasattr(timer, "take"):
        raise UsageError(f"timer: expected a name or a timer, found {timer!r}")
    if cache not in (None, "cold", "warm"):
        raise UsageError(f"cache: expected 'cold' or 'warm', found {cache!r}")
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise UsageError(f"retries: expected how many, 0 or more, found {retries!r}")


def amount(name: str, value: object, *, zero: bool = False) -> float:
    """A finite number above zero (or zero, where that means something), of whatever library.  Raises UsageError."""
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


def share(name: str, value: object) -> float:
    """A number above 0 and below 1.  Raises UsageError."""
    number = amount(name, value)
    if number >= 1:
        raise UsageError(f"{name}: expected a share between 0 and 1, as 0.005 for half a per cent, found {value!r}")
    return number


def amount_or_none(name: str, value: object, *, zero: bool = False) -> float | None:
    """The same where None means that it is not said."""
    return None if value is None else amount(name, value, zero=zero)


def dtype_named(dtype: object) -> str | None:
    """The name of a data type, given as text or as torch or numpy have it.  Raises UsageError."""
    if dtype is None:
        return None
    # torch.float16, np.dtype("float16"), and np.float16, which is a class.
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(text).removeprefix("torch.")
    if isinstance(dtype, int | float) or not _DTYPE.fullmatch(name):
        raise UsageError(f"dtype: expected a data type as 'bfloat16', found {dtype!r}")
    return name


def label_of(fn: Callable[..., Any], label: str | None) -> str:
    if label is not None and not isinstance(label, str):
        raise UsageError(f"label: expected text, found {label!r}")
    return label or str(getattr(fn, "__name__", None) or type(fn).__name__)[:LABEL_LENGTH]


Cache = Literal["cold", "warm"]
TimerName = Literal["events", "graph", "host"]
TimerChoice = TimerName | Timer | None
