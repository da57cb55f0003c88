"""Windows as decorators: each call of the decorated function runs in its own window."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gpuwatch.errors import UsageError
from gpuwatch.wire.messages import LABEL_LENGTH

if TYPE_CHECKING:
    from gpuwatch.client.window import Window

P = ParamSpec("P")
T = TypeVar("T")


def wrap(function: Callable[P, T], label: str | None, make_window: Callable[[str], Window]) -> Callable[P, T]:
    """Return a wrapper that runs each call in a window; without a label the function names the window.

    ``wrapper.window`` is the latest window.

    Raises UsageError: for a generator, whose call does no work.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            "expected a function, found a generator, whose call does no work; put `with gpuwatch.window():` around the loop that runs it"
        )

    def open_next() -> Window:
        made = make_window(label or function.__qualname__[:LABEL_LENGTH])
        wrapper.window = made  # type: ignore[attr-defined]  # functions accept attributes; the type lacks them
        return made

    wrapper: Callable[P, Any]
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
            async with open_next():
                return await function(*args, **kwargs)
    else:

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            with open_next():
                return function(*args, **kwargs)

    return wrapper
