"""Replacements of a harness's functions, which call them: one for each, and recognisable."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

OURS = "__gpuwatch_original__"  # the attribute of a replacement that keeps the original


def replace_function(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:  # of any module
    """Put ``make(original)`` in the place of a function, with its name and signature; False where it is missing or replaced already."""
    original = getattr(owner, name, None)
    if not callable(original) or hasattr(original, OURS):
        return False
    made = functools.wraps(original)(make(original))
    setattr(made, OURS, original)
    setattr(owner, name, made)
    return True


def original_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of the harness itself."""
    found: Callable[..., Any] = getattr(function, OURS, function)
    return found


def has_parameters(function: Callable[..., Any], *names: str) -> bool:
    """Return True if a function has these parameters; an unknown version of a harness is left alone."""
    try:
        return set(names) <= set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False


def name_of(function: object) -> str:
    """Return the name of a measured function; of a partial, that of the function inside."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__qualname__
    return str(name).replace("<locals>.", "")
