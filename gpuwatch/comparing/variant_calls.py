"""The variants as calls that need no arguments, and their first results."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuwatch.comparing import compare_arguments
from gpuwatch.comparing.compare_arguments import CompareRequest, Variant
from gpuwatch.comparing.load_variants import wants_inputs
from gpuwatch.errors import UsageError
from gpuwatch.measuring import reference, tensor_trees
from gpuwatch.measuring.reference import Match

Calls = Mapping[str, tuple[Callable[[], object], ...]]
_FACTORY = "make_"


def input_sets(request: CompareRequest) -> list[tuple[Any, ...]]:
    """Return the sets of arguments: several where a function makes them, because where data lies is part of a time."""
    if callable(request.inputs):
        return [compare_arguments.checked_inputs(request.inputs(), name="inputs()") for _ in range(request.buffers_count)]
    return [compare_arguments.checked_inputs(request.inputs)]


def make_calls(request: CompareRequest, inputs: list[tuple[Any, ...]]) -> Calls:
    """Bind each variant to its arguments, one call for each set; all variants get the same sets.

    Raises UsageError: when a variant lacks inputs, or a factory returns no function.
    """
    calls = {}
    for name, variant in request.variants.items():
        if is_factory(variant):
            calls[name] = _made(request, name, variant, inputs)
        elif wants_inputs(variant) and not any(inputs):
            raise UsageError(f"compare: {name}: expected inputs for a function that takes some; name them with inputs=")
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
        raise UsageError(f"compare: {name}: a function named {_FACTORY}… is to return a function, found {wrong[0]!r}")
    return tuple(each for each in made if callable(each))


def first_results(request: CompareRequest, calls: Calls, *, has_inputs: bool) -> dict[str, Match]:
    """Call each variant once, which also compiles it and makes a context; compare the results with the reference's.

    Return no match where the reference returns nothing.  Its result is copied: all variants may write to one buffer.
    """
    first, *others = request.names
    expected = calls[first][0]()
    compare_arguments.check_result(first, expected)
    # A factory makes its own data, and so its own results: they must agree on given inputs only.
    is_comparable = request.check and (has_inputs or not any(map(is_factory, request.variants.values())))
    is_comparable = is_comparable and expected is not None
    expected = tensor_trees.mapped(expected, tensor_trees.copied) if is_comparable else None
    found = {}
    for name in others:
        result = calls[name][0]()
        compare_arguments.check_result(name, result)
        if is_comparable and result is None:
            found[name] = Match(float("inf"), 0.0)
        elif is_comparable:
            found[name] = reference.match_results(result, expected, request.tolerance_ratio)
    return found
