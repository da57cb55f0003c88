"""A file written whole or not at all: readers meanwhile see the old one."""

import os
from pathlib import Path


def replace(path: Path, data: bytes, *, mode: int | None = None, is_synced: bool = False) -> None:
    """Replace the file, whatever lay there.

    ``mode`` is set whatever the umask; None leaves it to the umask.  ``is_synced``: the data is on the disk before the name is.

    Raises OSError: when the folder takes no file; the old file stays.
    """
    written = _write_beside(path, data, mode=mode, is_synced=is_synced)
    try:
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def create(path: Path, data: bytes, *, mode: int | None = None, is_synced: bool = False) -> None:
    """Create the file, as ``replace`` does.

    Raises FileExistsError: when another process was quicker.
    Raises OSError: when the folder takes no file.
    """
    written = _write_beside(path, data, mode=mode, is_synced=is_synced)
    try:
        path.hardlink_to(written)  # fails where a file is, as a rename would not
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        written.rename(path)
    finally:
        written.unlink(missing_ok=True)


def _write_beside(path: Path, data: bytes, *, mode: int | None, is_synced: bool) -> Path:
    """Write a new file with a random name: in a folder others write to, a link could wait under any other."""
    import tempfile  # 9 ms that most processes need not spend

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
