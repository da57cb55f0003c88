"""The variants as calls without arguments."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuwatch.comparing import compare_arguments
from gpuwatch.comparing.compare_arguments import CompareRequest, Variant
from gpuwatch.comparing.load_variants import wants_inputs
from gpuwatch.errors import UsageError

Calls = Mapping[str, tuple[Callable[[], object], ...]]
_FACTORY = "make_"


def input_sets(request: CompareRequest) -> list[tuple[Any, ...]]:
    """Return the sets of arguments: ``buffers_count`` if a function makes them, because data addresses affect a time.

    Raises UsageError: for arguments that are neither a list nor a tuple.
    """
    if callable(request.inputs):
        made = make_with_seeds(request.inputs, request.buffers_count)
        return [compare_arguments.checked_inputs(each, name="inputs()") for each in made]
    return [compare_arguments.checked_inputs(request.inputs)]


def make_with_seeds(make: Callable[..., Any], count: int) -> list[Any]:
    """Call a function ``count`` times, with ``seed=0``, ``seed=1`` and so on if it takes a seed."""
    return [make(seed=seed) if takes_seed(make) else make() for seed in range(count)]


def takes_seed(make: Callable[..., Any]) -> bool:
    try:
        return "seed" in inspect.signature(make).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False


def make_calls(request: CompareRequest, inputs: list[tuple[Any, ...]]) -> Calls:
    """Bind each variant to its arguments, one call for each set; all variants get the same sets.

    Raises UsageError: when a variant lacks inputs, or a factory returns no function.
    """
    calls = {}
    for name, variant in request.variants.items():
        if is_factory(variant):
            calls[name] = _made(request, name, variant, inputs)
        elif wants_inputs(variant) and not any(inputs):
            raise UsageError(
                f"compare: {name}: expected inputs for a function with arguments, found none; give them with inputs="
            )
        else:
            calls[name] = tuple(partial(variant, *each) for each in inputs)
    return calls


def is_factory(variant: Variant) -> bool:
    """Return True for a function that makes variants, each with its own buffers."""
    return getattr(variant, "__name__", "").startswith(_FACTORY)


def _made(
    request: CompareRequest, name: str, factory: Variant, inputs: list[tuple[Any, ...]]
) -> tuple[Callable[[], object], ...]:
    count = len(inputs) if any(inputs) else max(request.buffers_count, len(inputs))
    made = [factory(*inputs[number % len(inputs)]) for number in range(count)]
    wrong = [each for each in made if not callable(each)]
    if wrong:
        raise UsageError(f"compare: {name}: a function named {_FACTORY}… must return a function, found {wrong[0]!r}")
    return tuple(each for each in made if callable(each))
