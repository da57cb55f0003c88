"""Small records stored between runs in the state folder: one JSON file each, written whole or not at all."""

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuwatch import atomic_write

SCHEMA = 1
MOST_BYTES = 1 << 20  # fifty canaries of each of a hundred GPUs stay below
_DIGITS_COUNT = 64


def read(path: Path) -> dict[str, Any]:
    """Return the content of a file; nothing where it is missing, damaged, of a newer schema, or no regular file."""
    try:
        # A pipe in its place would be waited for, a device read for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
                return {}
            found = json.loads(file.read(), parse_constant=_number, parse_float=_number, parse_int=_number)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Replace the file, making its folder.  Raises OSError; ValueError: for numbers that JSON does not have."""
    text = json.dumps({"schema": SCHEMA} | dict(data), indent=1, allow_nan=False)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_write.replace(path, text.encode(), mode=0o644)  # the folder says who may come in


def _number(text: str) -> float:
    """Read a number.  Raises ValueError: for infinities, NaN and whole numbers beyond a float, which no reading is."""
    if len(text) > _DIGITS_COUNT or not math.isfinite(number := float(text)):
        raise ValueError(f"expected a number, found {text[:_DIGITS_COUNT]}")
    return int(text) if text.lstrip("-").isdigit() else number
