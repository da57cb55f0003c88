"""Small things kept between runs in the state folder: one JSON file each, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
MOST_BYTES = 1 << 20  # fifty canaries of each of a hundred GPUs stay below
_DIGITS_COUNT = 64


def read(path: Path) -> dict[str, Any]:
    """What the file holds; nothing where there is none, or where it is damaged, of a newer schema, or no such file of ours."""
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
    """Replace the file, making its folder.  Raises OSError, and ValueError for what JSON does not have."""
    text = json.dumps({"schema": SCHEMA} | dict(data), indent=1, allow_nan=False)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A new file of a name nobody can guess: in a folder that others write to, a link could wait under any other.
    descriptor, written = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)  # as any file is made; the folder says who may come in
            file.write(text)
        Path(written).replace(path)
    finally:
        Path(written).unlink(missing_ok=True)


def _number(text: str) -> float:
    """Raises ValueError for what no reading is, and arithmetic stumbles over: infinities, NaN, whole numbers beyond a float."""
    if len(text) > _DIGITS_COUNT or not math.isfinite(number := float(text)):
        raise ValueError(f"expected a number, found {text[:_DIGITS_COUNT]}")
    return int(text) if text.lstrip("-").isdigit() else number
