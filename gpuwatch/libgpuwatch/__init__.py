"""The C library for programs in any language: its path, and a check that a file is this library.

``python -m gpuwatch.libgpuwatch`` prints the folder, for PKG_CONFIG_PATH and CMAKE_PREFIX_PATH.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "libgpuwatch.so"  # missing if the installation could not compile it


def is_ours(named: str, seen: Path) -> bool:
    """Return True if ``named`` is the library's path, and ``seen``, that file in a process's view, has the same content."""
    try:
        is_named = Path(named).is_absolute() and Path(named).resolve() == LIBRARY.resolve()
        # A file of another length is not read, because it may be huge.
        return is_named and seen.stat().st_size == LIBRARY.stat().st_size and seen.read_bytes() == LIBRARY.read_bytes()
    except OSError:
        return False
