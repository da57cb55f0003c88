"""Bytes of an untrusted file, read without NumPy, whose import starts threads."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpuwatch.errors import UsageError

MOST_BYTES = 256 << 20


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a regular file.

    Raises UsageError: for anything else, and for a file above the limit.
    """
    try:
        # Opening a pipe would block, and a device may never end.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path}: expected a regular file, found a folder, pipe or device")
            if status.st_size > most_bytes:
                raise UsageError(f"{path}: expected at most {most_bytes >> 20} MiB, found {status.st_size >> 20} MiB")
            return file.read(most_bytes)
    except OSError as error:
        raise UsageError(f"{path}: expected a result file, found nothing to read: {error.strerror}") from error
