"""The kept inputs of each target.

Apart from seeds and past crashes, ``keep`` leaves only inputs that reach a line that no smaller input reaches.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.targets import target

FOLDER = Path(__file__).parent / "corpus"
LASTING = ("seed-", "crash-")  # prefixes of inputs that stay: handwritten or from real files, and findings of the past
MOST_COUNT, MOST_BYTES = 60, 4096
_OURS = ("/gpuwatch/", "/annotate/")


def inputs(name: str) -> list[Path]:
    return sorted((FOLDER / name).iterdir()) if (FOLDER / name).is_dir() else []


def keep(name: str, candidates: Iterable[Path], folder: Path | None = None) -> int:
    """Rebuild the corpus from the old one and the candidates, smallest first; return the number of kept inputs.

    ``folder`` replaces the target's folder of ``FOLDER``.
    """
    found, folder = target(name), folder or FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    old = sorted(folder.iterdir())
    seeds = [path for path in old if path.name.startswith(LASTING)]
    blobs = {path.read_bytes() for path in (*old, *candidates)} - {path.read_bytes() for path in seeds}
    reached: set[tuple[str, int]] = set()
    kept: list[bytes] = []
    for path in seeds:
        reached |= _lines(found, path.read_bytes())
    for blob in sorted((blob for blob in blobs if len(blob) <= MOST_BYTES), key=lambda blob: (len(blob), blob)):
        lines = _lines(found, blob)
        if lines - reached and len(kept) < MOST_COUNT:
            kept.append(blob)
        reached |= lines
    for path in set(old) - set(seeds):
        path.unlink()
    for blob in kept:
        (folder / hashlib.sha256(blob).hexdigest()[:16]).write_bytes(blob)
    return len(seeds) + len(kept)


def _lines(found: Callable[[bytes], None], blob: bytes) -> set[tuple[str, int]]:
    """Return the lines of gpuwatch and annotate that an input reaches in this thread."""
    reached: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:  # a trace function, or None
        name = frame.f_code.co_filename
        if not any(part in name for part in _OURS) or "/tests/" in name:
            return None
        if event == "line":
            reached.add((name, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        found(blob)
    finally:
        sys.settrace(None)
    return reached
