"""The mark of the last export: a small file in the state folder that `gpuwatch export` writes and the daemon reads."""

import math
from pathlib import Path

from gpuwatch import atomic_write

NAME = "last-export"
_MOST_BYTES = 64


def write_mark(state: Path, wall_s: float) -> None:
    """Record the time of a successful export.

    Raises OSError: when the folder cannot be written.
    """
    atomic_write.replace(state / NAME, f"{wall_s:.3f}\n".encode(), mode=0o644)


def read_mark_wall_s(state: Path) -> float | None:
    """Return the time of the last successful export, in seconds since 1970, or None if no valid time is recorded."""
    try:
        with (state / NAME).open("rb") as file:
            wall_s = float(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return None
    return wall_s if math.isfinite(wall_s) and wall_s > 0 else None
