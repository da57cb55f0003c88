"""Arguments and results as trees of tuples, lists and dicts, with leaves recognised by their methods instead of their type.

This module imports neither torch nor numpy, because the code that made the tensors did.
"""

from collections import UserDict
from collections.abc import Callable
from copy import copy
from typing import Any

from gpuwatch.process.inputs import leaves


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same tree with every leaf changed."""
    if isinstance(tree, dict | UserDict):
        copied = copy(tree)
        for key, value in tree.items():
            copied[key] = mapped(value, change)  # some mappings, such as transformers' ModelOutput, refuse ``update``
        return copied
    if isinstance(tree, tuple | list):
        values = [mapped(value, change) for value in tree]
        # A named tuple takes its fields as separate arguments.
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return change(tree)


def is_torch(leaf: object) -> bool:
    return hasattr(leaf, "data_ptr") and hasattr(leaf, "element_size")


def is_array(leaf: object) -> bool:
    """Return True for a tensor of torch or an array of numpy."""
    return is_torch(leaf) or (hasattr(leaf, "__array_interface__") and hasattr(leaf, "nbytes"))


def arrays(tree: object) -> list[Any]:
    return [leaf for leaf in leaves(tree) if is_array(leaf)]


def size_bytes(array: Any) -> int:
    return int(array.numel() * array.element_size()) if is_torch(array) else int(array.nbytes)


def copied(leaf: Any) -> Any:
    """Copy an array; return anything else unchanged."""
    if is_torch(leaf):
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)
    return leaf.copy() if is_array(leaf) else leaf


def dtype_name(tree: object) -> str | None:
    """Return the data type of the first array that holds floating-point numbers; None without one."""
    names = (str(array.dtype).removeprefix("torch.") for array in arrays(tree))
    return next((name for name in names if "float" in name), None)
