"""Small things kept between runs in the state folder: one JSON file each, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1


def read(path: Path) -> dict[str, Any]:
    """What the file holds; nothing where there is none, or where it is damaged or of a newer schema."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Replace the file, making its folder.  Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        written.write_text(json.dumps({"schema": SCHEMA} | dict(data), indent=1, allow_nan=False), encoding="utf-8")
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
