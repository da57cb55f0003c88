"""Small records stored between runs in the state folder: one JSON file each, written atomically."""

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuwatch import atomic_write

SCHEMA = 1
MOST_BYTES = 1 << 20  # fifty canaries for each of a hundred GPUs stay below this size
_DIGITS_COUNT = 64


def read(path: Path) -> dict[str, Any]:
    """Return the content of a file; an empty dict for a missing, damaged, large or irregular file, or another schema."""
    try:
        # Opening a pipe would block, and a device may never end.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
                return {}
            found = json.loads(file.read(), parse_constant=_number, parse_float=_number, parse_int=_number)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Replace the file, and make its folder.

    Raises OSError: when that fails.
    Raises ValueError: for numbers outside JSON.
    """
    text = json.dumps({"schema": SCHEMA} | dict(data), indent=1, allow_nan=False)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_write.replace(path, text.encode(), mode=0o644)  # the folder's mode controls access


def _number(text: str) -> float:
    if len(text) > _DIGITS_COUNT or not math.isfinite(number := float(text)):
        raise ValueError(f"expected a number, found {text[:_DIGITS_COUNT]}")
    return int(text) if text.lstrip("-").isdigit() else number
