"""Replacements of a harness's functions.  Each function is replaced at most once, and its replacement keeps the original."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

OURS = "__gpuwatch_original__"  # the attribute of a replacement that keeps the original


def replace_function(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:  # of any kind
    """Replace a function by ``make(original)``, with the same name and signature.

    Return False if the function is missing or already replaced, otherwise True.
    """
    original = getattr(owner, name, None)
    if not callable(original) or hasattr(original, OURS):
        return False
    made = functools.wraps(original)(make(original))
    setattr(made, OURS, original)
    setattr(owner, name, made)
    return True


def original_of(function: Callable[..., Any]) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(function, OURS, function)
    return found


def has_parameters(function: Callable[..., Any], *names: str) -> bool:
    """Return True if a function has these parameters."""
    try:
        return set(names) <= set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False


def name_of(function: object) -> str:
    """Return the name of a measured function; for a partial, the name of the wrapped function."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__qualname__
    return str(name).replace("<locals>.", "")
