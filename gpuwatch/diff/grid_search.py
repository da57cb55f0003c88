"""The grid that covers the outputs: from what one block writes, or from the GPU's size for a loop over the grid."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuwatch.diff.cubin import Threads
from gpuwatch.diff.trial import Touched

_ROWS = ("rows", "height", "m", "n_rows")
TryGrid = Callable[[Threads], list[Touched]]


@dataclass(frozen=True, slots=True)
class Footprint:
    """The elements that a launch writes: how many, in runs of which length, and how far apart the runs begin."""

    count: int
    run_count: int
    pitch_count: int | None  # None for a single run


@dataclass(frozen=True, slots=True)
class GridTerms:
    """Facts of a kernel that its grid depends on."""

    block: Threads
    strides: bool  # reads gridDim: it loops over the whole grid
    resident_blocks_count: int  # on the whole GPU at once
    sizes: Mapping[str, int]
    elements_count: int


def footprint(marks: Sequence[Touched]) -> Footprint | None:
    """Return the footprint in the output that is touched most; None where nothing was written."""
    touched = max(marks, key=np.count_nonzero, default=np.zeros(0, np.bool_))
    at = np.flatnonzero(touched)
    if not len(at):
        return None
    gaps = np.flatnonzero(np.diff(at) > 1)
    if not len(gaps):
        return Footprint(len(at), len(at), None)
    return Footprint(len(at), int(gaps[0]) + 1, int(at[gaps[0] + 1] - at[0]))


def find_grid(terms: GridTerms, try_grid: TryGrid) -> Threads | None:
    """Return the grid that covers all elements, from launches of one block and of two; None where nothing is written.

    No launch is larger than the elements need: a kernel that checks no bounds would write behind its buffers.
    """
    threads = math.prod(terms.block)
    volume = terms.elements_count
    if terms.strides:
        return max(1, min(-(-volume // threads), terms.resident_blocks_count)), 1, 1
    one = footprint(try_grid((1, 1, 1)))
    if one is None:
        return None
    if terms.block[1] > 1:
        return _plane(volume, one, footprint(try_grid((2, 1, 1))), footprint(try_grid((1, 2, 1))))
    if one.count >= threads:
        return -(-volume // one.count), 1, 1
    rows = next((size for name, size in terms.sizes.items() if name.lower() in _ROWS), None)
    return rows or -(-volume // threads), 1, 1


def untouched_count(marks: Sequence[Touched]) -> int:
    """Return the elements that were left out before the last one written: a shorter result is one, holes are a wrong launch."""
    holes = 0
    for touched in marks:
        at = np.flatnonzero(touched)
        holes += int(at[-1]) + 1 - len(at) if len(at) else 0
    return holes


def _plane(volume: int, one: Footprint, across: Footprint | None, down: Footprint | None) -> Threads:
    """Return the grid of a kernel whose blocks write tiles; x may lead along the output's rows, or across them."""
    width, height = one.run_count, max(1, one.count // one.run_count)
    seen = [each for each in (one, across, down) if each is not None]
    pitch = next((each.pitch_count for each in seen if each.pitch_count), None) or volume
    rows = -(-volume // pitch)
    along, lines = -(-pitch // width), -(-rows // height)
    is_x_along = across is None or across.run_count > width
    return (along, lines, 1) if is_x_along else (lines, along, 1)
