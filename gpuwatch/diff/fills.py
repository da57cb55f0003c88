"""Buffer values: seeded random numbers of each type, and special values that expose faults."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwatch.diff.kernel_arguments import Slot
from gpuwatch.diff.kernel_device import Bytes
from gpuwatch.errors import UsageError

NAMES = ("randn", "zeros", "iota")
INPUT_FILLS = ("nan", "large")
# Longer buffers repeat their first values.  The period is not a power of two, so that a wrong index reads another value.
_PERIOD_COUNT = (1 << 24) - 3
_WHOLE_NUMBERS = 128  # random integers are below this number, to fit every type and to be indices of most buffers
_NAN_STEP = 61 * 17
_LARGE = 1e4  # factor of random numbers; half precision ends at 65504
_LARGE_HALF = 1e2

Numbers = npt.NDArray[Any]


def make_values(slot: Slot, count: int, fill: str, rng: np.random.Generator) -> Bytes:
    """Return the bytes of a buffer.  ``fill`` is one of ``NAMES``, ``nan`` or ``large`` for the check, or FILE.npy.

    Raises UsageError: for an unreadable file, or a file without numbers.
    """
    if fill.endswith(".npy"):
        return encode(slot, np.resize(_read_file(fill), count))
    return np.resize(encode(slot, _make_numbers(slot, min(count, _PERIOD_COUNT), fill, rng)), count * slot.itemsize)


def check_fill(text: str) -> None:
    """Check a value of --fill.

    Raises UsageError: for an unknown name, an unreadable file, or a file without numbers.
    """
    if text.endswith(".npy"):
        _read_file(text)
    elif text not in NAMES:
        raise UsageError(f"--fill: expected {', '.join(NAMES)} or FILE.npy, found {text!r}")


def encode(slot: Slot, values: Numbers) -> Bytes:
    """Return numbers as bytes of a slot's type."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if slot.kind == "bf16":
        bits = flat.astype("f4").view("u4")
        rounded: Bytes = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("u2").view(np.uint8)  # ties to even
        return rounded
    return flat.astype(slot.kind).view(np.uint8)


def decode(slot: Slot, data: Bytes) -> Numbers:
    """Return bytes as numbers; bfloat16 becomes float32 without loss."""
    if slot.kind == "bf16":
        return (data.view("u2").astype("u4") << 16).view("f4")
    return data.view(slot.kind)


def _make_numbers(slot: Slot, count: int, fill: str, rng: np.random.Generator) -> Numbers:
    if fill in ("zeros", "iota"):
        return np.zeros(count, np.uint8) if fill == "zeros" else np.arange(count)
    if not slot.is_float:
        return rng.integers(0, _WHOLE_NUMBERS, count, np.uint8)
    values = rng.standard_normal(count, np.float32)
    if fill == "nan":
        values[::_NAN_STEP] = np.nan  # far apart: most partial sums contain no NaN
    return values * np.float32(_LARGE_HALF if slot.kind == "f2" else _LARGE) if fill == "large" else values


def _read_file(text: str) -> Numbers:
    try:
        found = np.load(Path(text), allow_pickle=False)
        if found.size and np.issubdtype(found.dtype, np.number):
            return np.asarray(found)
    except (OSError, ValueError) as error:
        raise UsageError(f"--fill: expected a .npy file of numbers, found {text}: {error}") from error
    raise UsageError(f"--fill: expected a .npy file of numbers, found {text} with {found.size} values of {found.dtype}")
