"""The files of ``--output``: refused before the work where they cannot be written, and written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from gpuwatch import atomic_write
from gpuwatch.errors import UsageError


def check(target: Path) -> None:
    """Check before the work that the file can be written.

    Raises UsageError: when it cannot, and for a device, a pipe or /dev/stdout, which root could replace by a file.
    """
    special = target.exists() and not target.is_file() and not target.is_dir()
    if special or target.parent.resolve() == Path("/dev"):
        raise UsageError(f"--output: expected a file, found {target}, which is a device or a pipe")
    if target.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--output: expected a file in a folder that can be written, found {target}")


def write(target: Path, blob: bytes) -> None:
    """Write all or nothing: readers meanwhile see the old file.  Raises UsageError: when it cannot be written."""
    try:
        atomic_write.replace(target, blob)
    except OSError as error:
        raise UsageError(f"--output: {target}: {error.strerror}") from error
