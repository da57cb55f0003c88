"""What each call finds in the L2 cache: what the call before left there, or nothing of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpuwatch.errors import UsageError
from gpuwatch.measuring import tensor_trees
from gpuwatch.timers import Call

# Written between two calls.  Once its size leaves lines behind: the cache is hashed, and not replaced in order.
FLUSH_L2_RATIO = 2.0
# Inputs in turn: so much else is touched before one comes again.
_ROTATION_L2_RATIO = 3.0
_COPIES_MOST_COUNT = 512


@dataclass(frozen=True, slots=True)
class Setting:
    """The calls to take in turn, what is done before each entry, and what is told of both.

    ``batches`` says whether several calls may follow each other within an entry.
    """

    calls: tuple[Call, ...]
    batches: bool
    before: Callable[[], None] | None = None
    told: Mapping[str, int | str | bool] = field(default_factory=dict)


def warm(fn: Callable[..., object], args: tuple[Any, ...]) -> Setting:
    return Setting((partial(fn, *args) if args else fn,), batches=True, told={"cache": "warm", **_working_set(args)})


def flushed(fn: Callable[..., object], args: tuple[Any, ...], flush: Callable[[], None], flush_bytes: int) -> Setting:
    """A flush before each call, outside the timed span: calls cannot be batched."""
    told: dict[str, int | str | bool] = {
        "cache": "cold",
        "flush_bytes": flush_bytes,
        "flush_timed": False,
        **_working_set(args),
    }
    return Setting((partial(fn, *args) if args else fn,), batches=False, before=flush, told=told)


def rotated(fn: Callable[..., object], inputs: list[tuple[Any, ...]]) -> Setting:
    """Inputs in turn: what one call left in the cache is gone when its inputs come again."""
    sizes = [sum(map(tensor_trees.size_bytes, tensor_trees.arrays(one))) for one in inputs]
    told: dict[str, int | str | bool] = {"cache": "cold", "flush_timed": False}
    if any(sizes):
        told |= {"flush_bytes": sum(sizes) - max(sizes), "working_set_bytes": max(sizes)}
    return Setting(tuple(partial(fn, *one) for one in inputs), batches=True, told=told)


def copies(args: tuple[Any, ...], l2_bytes: int) -> list[tuple[Any, ...]] | None:
    """So many copies of the arguments that each is out of the cache when it comes again; None where there is no telling.

    Inputs far larger than the cache need no copies, and tiny ones too many.
    """
    size = sum(tensor_trees.size_bytes(array) for array in tensor_trees.arrays(args))
    if not size:
        return None
    count = int(-(-_ROTATION_L2_RATIO * l2_bytes // size)) + 1
    if count > _COPIES_MOST_COUNT:
        return None
    return [args, *(tensor_trees.mapped(args, tensor_trees.copied) for _ in range(count - 1))]


def flush_of(l2_bytes: int | None) -> tuple[Callable[[], None], int]:
    """A function that writes twice the L2 cache on the current stream, and how much that is.

    Raises UsageError where the size of the cache is not known.
    """
    if not l2_bytes:
        raise UsageError("cache='cold': this torch does not say how large the L2 cache is; use rotate=[...] or cache='warm'")
    count = int(FLUSH_L2_RATIO * l2_bytes)
    torch = sys.modules["torch"]
    buffer = torch.empty(count, dtype=torch.int8, device="cuda")
    return buffer.zero_, count


def _working_set(args: tuple[Any, ...]) -> dict[str, int]:
    size = sum(tensor_trees.size_bytes(array) for array in tensor_trees.arrays(args))
    return {"working_set_bytes": size} if size else {}
