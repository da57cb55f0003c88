"""Integers as bytes that compress well: differences, folded to small unsigned numbers, all low bytes first."""

import numpy as np
import numpy.typing as npt

_WIDTHS = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}


def encode(values: npt.NDArray[np.int64]) -> bytes:
    """Return one byte with the width, then ``width`` bytes per number."""
    steps = np.diff(values, prepend=np.int64(0))
    folded = ((steps << 1) ^ (steps >> 63)).view(np.uint64)  # zigzag: small numbers of either sign become small unsigned ones
    largest = int(folded.max()) if len(folded) else 0
    width = next(width for width in _WIDTHS if largest < 1 << (8 * width))
    return bytes([width]) + planes(folded.astype(_WIDTHS[width]))


def decode(data: bytes | memoryview, count: int) -> tuple[npt.NDArray[np.int64], memoryview]:
    """Return ``count`` numbers, and the bytes after them.

    Raises ValueError: for an unknown width, a negative count or too few bytes.
    """
    width = data[0] if data else 0
    if width not in _WIDTHS or count < 0 or len(data) < 1 + width * count:
        raise ValueError(f"expected {count} packed numbers, found {len(data)} bytes of width {width}")
    end = 1 + width * count
    folded = joined(data[1:end], width).view(_WIDTHS[width]).astype(np.uint64)
    steps = (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)
    return np.cumsum(steps, dtype=np.int64), memoryview(data)[end:]


def planes(values: npt.NDArray[np.generic]) -> bytes:
    """Return the first bytes of all numbers, then all second bytes, and so on: nearly constant bytes compress well."""
    return np.ascontiguousarray(values.view(np.uint8).reshape(len(values), -1).T).tobytes() if len(values) else b""


def joined(data: bytes | memoryview, width: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of ``planes`` in their original order, number after number."""
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(width, -1).T).reshape(-1)
