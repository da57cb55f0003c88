"""The C library for programs in any language: where it lies, and whether a file is this library.

``python -m gpuwatch.libgpuwatch`` prints the folder, for PKG_CONFIG_PATH and CMAKE_PREFIX_PATH.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "libgpuwatch.so"  # there unless no C compiler was at installation


def is_ours(named: str, seen: Path) -> bool:
    """Return whether a path names the package's library, and the file that a process sees there has its content."""
    try:
        is_named = Path(named).is_absolute() and Path(named).resolve() == LIBRARY.resolve()
        # A file of another length is not read: it may have any length.
        return is_named and seen.stat().st_size == LIBRARY.stat().st_size and seen.read_bytes() == LIBRARY.read_bytes()
    except OSError:
        return False
