"""The C library for programs in any language: where it lies, and whether a file is this library.

``python -m gpuwatch.libgpuwatch`` prints the folder, for PKG_CONFIG_PATH and CMAKE_PREFIX_PATH.
"""

import functools
import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "libgpuwatch.so"  # there unless no C compiler was at installation
_LONGEST_BYTES = 4 << 20
_Version = tuple[int, int, int, int]


def is_ours(named: str, seen: Path) -> bool:
    """Return whether a path names the package's library, and the file that a process sees there has its content."""
    if not Path(named).is_absolute():
        return False
    try:
        return Path(named).resolve() == LIBRARY.resolve() and _content(seen) == _content(LIBRARY)
    except OSError:
        return False


def _content(path: Path) -> str:
    found = path.stat()
    return _hashed(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


@functools.lru_cache(maxsize=16)
def _hashed(path: Path, version: _Version) -> str:
    if version[2] > _LONGEST_BYTES:
        raise OSError(f"{path}: expected a library of at most {_LONGEST_BYTES} bytes, found {version[2]}")
    return hashlib.sha256(path.read_bytes()).hexdigest()
