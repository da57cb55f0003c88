"""The dense power record as bytes: about two a sample, for times to the millisecond and power to a tenth of a watt.

The driver's samples are means over about 25 ms, taken about 20 ms apart, and step by 0.13 W on an H200 (driver 580).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values

_FORMAT = 1
_STEP_NS = 1_000_000
_STEP_W = 0.1


def pack(at_ns: Sequence[int], power_w: Sequence[float]) -> bytes:
    """Samples in ascending order, at least one; the first time is kept beside the bytes."""
    times = np.array(at_ns, np.int64)
    steps = np.round((times - times[0]) / _STEP_NS).astype(np.int64)
    power = np.round(np.array(power_w, np.float64) / _STEP_W).astype(np.int64)
    planes = _planes(np.diff(steps)) + _planes(np.diff(power, prepend=0))
    deflate = zlib.compressobj(9, wbits=-15)
    return bytes([_FORMAT]) + deflate.compress(planes) + deflate.flush()


def unpack(begin_ns: int, count: int, data: bytes) -> tuple[Times, Values]:
    """Raises ValueError for bytes that are none of ours."""
    if not data or data[0] != _FORMAT:
        raise ValueError(f"expected power samples of format {_FORMAT}, found {data[:1]!r}")
    try:
        raw = zlib.decompress(data[1:], wbits=-15)
    except zlib.error as error:
        raise ValueError(f"power samples are damaged: {error}") from error
    if len(raw) != 4 * (2 * count - 1):
        raise ValueError(f"expected {count} power samples, found {len(raw)} bytes")
    steps = np.concatenate(([0], np.cumsum(_from_planes(raw[: 4 * (count - 1)]))))
    power = np.cumsum(_from_planes(raw[4 * (count - 1) :]))
    return begin_ns + steps.astype(np.int64) * _STEP_NS, power.astype(np.float64) * _STEP_W


def _planes(values: npt.NDArray[np.int64]) -> bytes:
    """All lowest bytes, then all second ones and so on: the high ones hardly change, so they compress to nothing."""
    folded = ((values << 1) ^ (values >> 63)).astype("<u4")  # small numbers of either sign become small ones
    return np.ascontiguousarray(folded.view(np.uint8).reshape(-1, 4).T).tobytes()


def _from_planes(raw: bytes) -> npt.NDArray[np.int64]:
    planes = np.frombuffer(raw, np.uint8).reshape(4, -1)
    folded = np.ascontiguousarray(planes.T).view("<u4").reshape(-1).astype(np.int64)
    return (folded >> 1) ^ -(folded & 1)
