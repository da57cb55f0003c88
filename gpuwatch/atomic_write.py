"""Atomic writing of files: readers see the old or the new file, never a part."""

import os
from pathlib import Path


def replace(path: Path, data: bytes, *, mode: int | None = None, is_synced: bool = False) -> None:
    """Write the data to the path, in place of anything there.

    ``mode`` ignores the umask; None means 0666 with the umask.  ``is_synced``: the data reaches the disk before the name.

    Raises OSError: when the file cannot be written; the old file stays.
    """
    written = _write_beside(path, data, mode=mode, is_synced=is_synced)
    try:
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def create(path: Path, data: bytes, *, mode: int | None = None, is_synced: bool = False) -> None:
    """Create the file; the arguments are as in ``replace``.

    Raises FileExistsError: when the file exists already; a file system without links replaces the file instead.
    Raises OSError: when the file cannot be written.
    """
    written = _write_beside(path, data, mode=mode, is_synced=is_synced)
    try:
        path.hardlink_to(written)  # link() fails if the file exists, while rename() would replace it
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        written.rename(path)
    finally:
        written.unlink(missing_ok=True)


def _write_beside(path: Path, data: bytes, *, mode: int | None, is_synced: bool) -> Path:
    """Write a new file with a random name: in a shared folder, another user could put a link at a known name."""
    import tempfile  # imported late: slow, and most processes do not need it

    descriptor, name = tempfile.mkstemp(prefix=".gpuwatch.", dir=path.parent)
    written = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o666 & ~_umask() if mode is None else mode)
            file.write(data)
            if is_synced:
                file.flush()
                os.fsync(descriptor)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    return written


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
