"""The codec of the dense power record: times in milliseconds, power in tenths of a watt, about two bytes per sample.

The driver's samples are 20 ms apart (docs/HARDWARE.md).
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotate.evidence import Times, Values

_FORMAT = 1
_STEP_NS = 1_000_000
_STEP_W = 0.1
_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}


def pack(at_ns: Sequence[int], power_w: Sequence[float]) -> bytes:
    """Encode at least one sample, in ascending order of time.

    The bytes omit the first time: the caller stores it and passes it to ``unpack``.
    """
    steps = [round((each - at_ns[0]) / _STEP_NS) for each in at_ns]
    power = [round(each / _STEP_W) for each in power_w]
    deflate = zlib.compressobj(9, wbits=-15)
    return bytes([_FORMAT]) + deflate.compress(_planes(steps) + _planes(power)) + deflate.flush()


def _planes(values: Sequence[int]) -> bytes:
    """Encode numbers as ``byte_planes.encode`` does, but without numpy, which the daemon does not import."""
    steps = [values[0], *(after - before for before, after in pairwise(values))]
    folded = [(step << 1) ^ (step >> 63) for step in steps]
    largest = max(folded)
    width = next(width for width in _WIDTHS if largest < 1 << (8 * width))
    raw = array(_WIDTHS[width], folded).tobytes()
    return bytes([width]) + b"".join(raw[plane::width] for plane in range(width))


def unpack(begin_ns: int, count: int, data: bytes) -> tuple[Times, Values]:
    """Return the times and the power of the samples.

    Raises ValueError: when the bytes have another format, are damaged, or hold more than ``count`` samples.
    """
    import numpy as np

    from annotate.capsule import byte_planes

    if not data or data[0] != _FORMAT:
        raise ValueError(f"expected power samples of format {_FORMAT}, found {data[:1]!r}")
    try:
        raw = zlib.decompress(data[1:], wbits=-15)
    except zlib.error as error:
        raise ValueError(f"power samples are damaged: {error}") from error
    steps, rest = byte_planes.decode(raw, count)
    power, rest = byte_planes.decode(rest, count)
    if rest:
        raise ValueError(f"expected {count} power samples, found more")
    return begin_ns + steps * _STEP_NS, power.astype(np.float64) * _STEP_W
