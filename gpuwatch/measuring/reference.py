"""The check of a result against its reference, before any time counts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuwatch.errors import UsageError
from gpuwatch.measuring import tensor_trees
from gpuwatch.process.inputs import leaves

# A typical error of a reduction of a few thousand products per data type; torch's own defaults are for single operations.
_LIMITS = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 2e-2, "complex128": 1e-9, "complex64": 1e-4}
_FP8_LIMIT = 0.125
_SLICE_COUNT = 1 << 24  # values compared at once: as doubles they take 128 MiB


@dataclass(frozen=True, slots=True)
class Match:
    """The largest relative error against a reference, and the limit; for several results, those of the worst result."""

    error_ratio: float
    limit_ratio: float

    @property
    def holds(self) -> bool:
        return self.error_ratio <= self.limit_ratio


def match_results(result: object, reference: object, rtol: float | None = None) -> Match:
    """Compare two trees of tensors, arrays and numbers.

    The error of a value is |value − reference| / (|reference| + mean |reference|), because a sum close to zero loses digits
    in any computation.  Without ``rtol`` the limit is the data type's.  Another shape or number of results counts as
    an infinite error, and so does a NaN that the reference lacks.
    Raises UsageError: when the result is missing or cannot be compared.
    """
    mine, theirs = list(leaves(result)), list(leaves(reference))
    if all(leaf is None for leaf in mine) and any(leaf is not None for leaf in theirs):
        raise UsageError("reference: expected a function that returns its result, found one that returns nothing to compare")
    if len(mine) != len(theirs):
        return Match(float("inf"), rtol or 0.0)
    found = [_match_leaf(a, b, rtol) for a, b in zip(mine, theirs, strict=True) if a is not None or b is not None]
    return max(found, key=lambda one: one.error_ratio - one.limit_ratio, default=Match(0.0, rtol or 0.0))


def _match_leaf(result: Any, reference: Any, rtol: float | None) -> Match:
    kind = str(getattr(result, "dtype", "complex128" if isinstance(result, complex) else "float64")).removeprefix("torch.")
    limit = rtol if rtol is not None else _FP8_LIMIT if kind.startswith("float8") else _LIMITS.get(kind, 0.0)
    try:
        if tensor_trees.is_torch(result) and tensor_trees.is_torch(reference):
            return Match(_torch_error(result, reference), limit)
        return Match(_error(_numpy(result), _numpy(reference)), limit)
    except (TypeError, ValueError, NotImplementedError) as error:
        found = f"{type(result).__name__} and {type(reference).__name__}"
        why = str(error).partition("\n")[0]
        raise UsageError(f"reference: expected tensors, arrays or numbers, found {found} ({why})") from error


def _numpy(leaf: Any) -> np.ndarray[Any, Any]:
    if tensor_trees.is_torch(leaf):
        _check_laid_out(leaf)
        leaf = _wide(leaf.detach()).resolve_conj().cpu().numpy()
    # A complex number converted to real would lose its imaginary part, and any error in it.
    return np.asarray(leaf, np.complex128 if np.iscomplexobj(leaf) else np.float64)


def _wide(tensor: Any) -> Any:  # torch is not a dependency, so a tensor has no type here
    return tensor.cdouble() if "complex" in str(tensor.dtype) else tensor.double()


def _check_laid_out(tensor: Any) -> None:  # torch is not a dependency, so a tensor has no type here
    if "strided" not in str(getattr(tensor, "layout", "strided")) or getattr(tensor, "is_meta", False):
        raise ValueError("a tensor that is sparse or on the meta device has no values to compare")


def _error(result: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    if result.shape != reference.shape:
        return float("inf")
    if not result.size:
        return 0.0
    with np.errstate(all="ignore"):
        size = np.abs(reference)
        ratios = np.abs(result - reference) / (size + size[np.isfinite(size)].sum() / size.size)
        same = (result == reference) | (np.isnan(result) & np.isnan(reference))
    worst = np.where(same, 0.0, ratios).max()
    return float(worst) if np.isfinite(worst) else float("inf")


def _torch_error(result: Any, reference: Any) -> float:
    """Compute the error as ``_error`` does, on the result's device and in slices: a large tensor as doubles may not fit."""
    if result.shape != reference.shape:
        return float("inf")
    if not result.numel():
        return 0.0
    _check_laid_out(result)
    _check_laid_out(reference)
    mine, theirs = result.detach().reshape(-1), reference.detach().to(result.device).reshape(-1)
    pieces = [slice(first, first + _SLICE_COUNT) for first in range(0, len(mine), _SLICE_COUNT)]
    mean = sum(float(_wide(theirs[piece]).abs().nan_to_num(0.0, 0.0, 0.0).sum()) for piece in pieces) / len(theirs)
    worst = 0.0
    for piece in pieces:
        a, b = _wide(mine[piece]), _wide(theirs[piece])
        ratios = (a - b).abs() / (b.abs() + mean)
        same = (a == b) | (a.isnan() & b.isnan())
        worst = max(worst, float(ratios.masked_fill(same, 0.0).nan_to_num(float("inf"), float("inf")).max()))
    return worst


def output_unchanged(fn: Callable[..., object], args: tuple[Any, ...]) -> bool:
    """Return True if the result stays the same when the floating-point inputs change in place, as a cached result does.

    The inputs get their values back.
    Raises UsageError: without a floating-point input, when an input cannot be changed, or for a result that cannot be compared.
    """
    inputs = [array for array in tensor_trees.arrays(args) if "float" in str(array.dtype)]
    if not inputs:
        raise UsageError("check_inputs: expected floating-point tensors among args, found none")
    originals = [tensor_trees.copied(array) for array in inputs]
    before = tensor_trees.mapped(fn(*args), tensor_trees.copied)
    if all(leaf is None for leaf in leaves(before)):
        raise UsageError("check_inputs: expected a function that returns its result, found one that returns nothing to compare")
    changed: list[tuple[Any, Any]] = []
    try:
        for array, value in zip(inputs, originals, strict=True):
            _change(array)
            changed.append((array, value))
        return match_results(tensor_trees.mapped(fn(*args), tensor_trees.copied), before, 0.0).error_ratio == 0.0
    finally:
        for array, value in changed:
            _write(array, value)


def _change(array: Any) -> None:
    """Change an array in place.  Raises UsageError: when it is read-only, such as a constant broadcast to a shape."""
    try:
        # Eight-bit floats have no arithmetic.
        values = (
            array.detach().float() if tensor_trees.is_torch(array) and array.element_size() < 4 else tensor_trees.copied(array)
        )
        _write(array, -0.5 * values + 0.25)
    except (RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(
            f"check_inputs: expected args that can be changed in place for a moment, found one that cannot ({why})"
        ) from error


def _write(array: Any, values: Any) -> None:
    if tensor_trees.is_torch(array):
        array.detach().copy_(values)
    else:
        array[...] = values
