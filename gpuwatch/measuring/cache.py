"""The state of the L2 cache before each call: warm from the previous call, flushed, or filled by other inputs."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpuwatch.errors import UsageError
from gpuwatch.measuring import tensor_trees
from gpuwatch.timers import Call
from gpuwatch.wire.messages import FactValue

# Bytes written between two calls, over the cache size.  A ratio of 1 would leave old lines: replacement is not in order.
FLUSH_L2_RATIO = 2.0
# Bytes of other inputs between two uses of an input, over the cache size.
_ROTATION_L2_RATIO = 3.0
_COPIES_MOST_COUNT = 512


@dataclass(frozen=True, slots=True)
class CacheSetting:
    """The calls to take in turn, the function to run before each entry, and the facts to declare about both.

    ``batches`` allows several calls within an entry.
    """

    calls: tuple[Call, ...]
    batches: bool
    before: Callable[[], None] | None = None
    facts: Mapping[str, FactValue] = field(default_factory=dict)


def warm_setting(fn: Callable[..., object], args: tuple[Any, ...]) -> CacheSetting:
    """Return a setting that repeats one call on the same inputs."""
    return CacheSetting((partial(fn, *args) if args else fn,), batches=True, facts={"cache": "warm", **_working_set(args)})


def flushed_setting(
    fn: Callable[..., object], args: tuple[Any, ...], flush: Callable[[], None], flush_bytes: int
) -> CacheSetting:
    """Return a setting that flushes before each call, outside the timed span, so that calls are not batched."""
    facts = {"cache": "cold", "flush_bytes": flush_bytes, "flush_timed": False, **_working_set(args)}
    return CacheSetting((partial(fn, *args) if args else fn,), batches=False, before=flush, facts=facts)


def rotated_setting(fn: Callable[..., object], inputs: list[tuple[Any, ...]]) -> CacheSetting:
    """Return a setting that takes inputs in turn, and declares the bytes of other inputs between two uses of an input."""
    sizes = [sum(map(tensor_trees.size_bytes, tensor_trees.arrays(one))) for one in inputs]
    facts: dict[str, FactValue] = {"cache": "cold", "flush_timed": False}
    if any(sizes):
        facts |= {"flush_bytes": sum(sizes) - max(sizes), "working_set_bytes": max(sizes)}
    return CacheSetting(tuple(partial(fn, *one) for one in inputs), batches=True, facts=facts)


def copy_inputs(args: tuple[Any, ...], l2_bytes: int) -> list[tuple[Any, ...]] | None:
    """Return the arguments with enough copies that each set has left the cache before its next turn.

    Return None for arguments without arrays, and for tiny arrays, which would need too many copies.
    """
    size = sum(tensor_trees.size_bytes(array) for array in tensor_trees.arrays(args))
    if not size:
        return None
    count = int(-(-_ROTATION_L2_RATIO * l2_bytes // size)) + 1
    if count > _COPIES_MOST_COUNT:
        return None
    return [args, *(tensor_trees.mapped(args, tensor_trees.copied) for _ in range(count - 1))]


def make_flush(l2_bytes: int | None) -> tuple[Callable[[], None], int]:
    """Return a function that writes twice the L2 cache on the current stream, and the number of bytes it writes.

    Raises UsageError: when the size of the cache is unknown.
    """
    if not l2_bytes:
        raise UsageError(
            "cache='cold': expected the size of the L2 cache from torch, found none; use rotate=[...] or cache='warm'"
        )
    count = int(FLUSH_L2_RATIO * l2_bytes)
    torch = sys.modules["torch"]
    return torch.empty(count, dtype=torch.int8, device="cuda").zero_, count


def _working_set(args: tuple[Any, ...]) -> dict[str, FactValue]:
    size = sum(tensor_trees.size_bytes(array) for array in tensor_trees.arrays(args))
    return {"working_set_bytes": size} if size else {}
