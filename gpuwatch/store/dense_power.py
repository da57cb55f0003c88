"""The dense power record as bytes: less than two a sample, for times to the millisecond and power to a tenth of a watt.

The driver's samples are means over about 25 ms, taken about 20 ms apart, and step by 0.13 W on an H200 (driver 580).
"""

import zlib
from collections.abc import Sequence

import numpy as np

from annotate.capsule import byte_planes
from annotate.evidence import Times, Values

_FORMAT = 1
_STEP_NS = 1_000_000
_STEP_W = 0.1


def pack(at_ns: Sequence[int], power_w: Sequence[float]) -> bytes:
    """Samples in ascending order, at least one; the first time is stored beside the bytes."""
    times = np.array(at_ns, np.int64)
    steps = np.round((times - times[0]) / _STEP_NS).astype(np.int64)
    power = np.round(np.array(power_w, np.float64) / _STEP_W).astype(np.int64)
    deflate = zlib.compressobj(9, wbits=-15)
    return bytes([_FORMAT]) + deflate.compress(byte_planes.encode(steps) + byte_planes.encode(power)) + deflate.flush()


def unpack(begin_ns: int, count: int, data: bytes) -> tuple[Times, Values]:
    """Raises ValueError for bytes that are none of ours."""
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
