"""The correctness check before any timing: compares the results of all variants."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.comparing import compare_arguments, variant_calls
from gpuwatch.comparing.compare_arguments import CompareRequest
from gpuwatch.comparing.variant_calls import Calls
from gpuwatch.errors import UsageError
from gpuwatch.measuring import reference, tensor_trees
from gpuwatch.measuring.reference import Match

_Round = Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class CheckedResults:
    """The worst match of each other variant with the reference, and the number of compared sets of inputs."""

    matches: dict[str, Match] = field(default_factory=dict)
    sets_count: int = 0


def check_results(request: CompareRequest, calls: Calls, inputs: list[tuple[Any, ...]]) -> CheckedResults:
    """Call each variant on each set of inputs, or on one set if results are not compared, and compare the results.

    The first call may also compile a variant and create a context.
    Raises UsageError: when a result cannot be compared, or ``check_inputs`` are invalid.
    """
    # A factory makes its own data, so results can agree only on given inputs.
    is_given = any(inputs) or not any(map(variant_calls.is_factory, request.variants.values()))
    is_comparable = request.check and is_given
    if request.check and request.check_inputs and not is_given:
        raise UsageError(
            "compare: check_inputs: expected inputs too, as make_ functions make other data, found none; give inputs"
        )
    matches: dict[str, Match] = {}
    sets_count = 0
    for each in _rounds(request, calls, inputs, every_set=is_comparable):
        found = _compare_round(request, each, is_comparable=is_comparable)
        sets_count += bool(found)
        for name, match in found.items():
            matches[name] = max(matches.get(name, match), match, key=lambda one: one.error_ratio - one.limit_ratio)
    return CheckedResults(matches, sets_count)


def _rounds(request: CompareRequest, calls: Calls, inputs: list[tuple[Any, ...]], *, every_set: bool) -> Iterator[_Round]:
    """Yield the variants' calls for one set of inputs after another; without ``every_set``, only for the first set.

    A compared function gets copies of the inputs, because work in place would change the next variant's inputs.
    """
    sets = inputs if every_set else inputs[:1]
    for number, each in enumerate(sets):
        yield {
            name: calls[name][number] if variant_calls.is_factory(variant) or not every_set else _on_copies(variant, each)
            for name, variant in request.variants.items()
        }
    for each in _check_sets(request) if every_set else ():
        yield {
            name: _on_made(variant, each) if variant_calls.is_factory(variant) else _on_copies(variant, each)
            for name, variant in request.variants.items()
        }


def _check_sets(request: CompareRequest) -> Iterator[tuple[Any, ...]]:
    given = request.check_inputs
    if callable(given):
        seeds_count = request.buffers_count if variant_calls.takes_seed(given) else 1
        lists = variant_calls.make_with_seeds(given, seeds_count)
    else:
        lists = [given]
    for sets in lists:
        if not isinstance(sets, list | tuple) or not all(isinstance(each, list | tuple) for each in sets):
            raise UsageError("compare: check_inputs: expected a list of tuples of arguments, one tuple for each check")
        yield from map(tuple, sets)


def _on_copies(variant: Callable[..., object], arguments: tuple[Any, ...]) -> Callable[[], object]:
    return lambda: variant(*tensor_trees.mapped(arguments, tensor_trees.copied))


def _on_made(factory: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], object]:
    def call() -> object:
        made = factory(*tensor_trees.mapped(arguments, tensor_trees.copied))
        return made()

    return call


def _compare_round(request: CompareRequest, calls: _Round, *, is_comparable: bool) -> dict[str, Match]:
    first, *others = request.names
    expected = _result(first, calls[first])
    is_comparable = is_comparable and expected is not None
    # Copy the expected result, because all variants may write to one buffer.
    expected = tensor_trees.mapped(expected, tensor_trees.copied) if is_comparable else None
    found = {}
    for name in others:
        result = _result(name, calls[name])
        if is_comparable and result is None:
            found[name] = Match(float("inf"), 0.0)
        elif is_comparable:
            found[name] = reference.match_results(result, expected, request.rtol)
    return found


def _result(name: str, call: Callable[[], object]) -> object:
    result = call()
    compare_arguments.check_result(name, result)
    return result
