"""Writing of pages generated from the code, and their comparison with the tree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(path: Path, text: str, source: str, arguments: Sequence[str]) -> int:
    """Write the page; with ``--check`` return 1 and name the source if the page in the tree differs."""
    if "--check" not in arguments:
        path.write_text(text)
        return 0
    if path.is_file() and path.read_text() == text:
        return 0
    sys.stderr.write(f"{path} differs from {source}; run: make pages\n")
    return 1
