"""Files that commands are asked to write: refused before the work where they cannot be, and written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gpuwatch.errors import UsageError


def check(target: Path) -> None:
    """Told before the work, not after it.  Raises UsageError.

    A device, a pipe or /dev/stdout is not replaced by a file, which root could do.
    """
    special = target.exists() and not target.is_file() and not target.is_dir()
    if special or target.parent.resolve() == Path("/dev"):
        raise UsageError(f"--output: expected a file, found {target}, which is a device or a pipe")
    if target.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--output: expected a file in a folder that can be written, found {target}")


def whole(target: Path, blob: bytes) -> None:
    """All or nothing: whoever reads the file meanwhile sees the old one.  Raises UsageError."""
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".gpuwatch.")
    except OSError as error:
        raise UsageError(f"--output: {target}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(blob)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise UsageError(f"--output: {target}: {error.strerror}") from error
