"""The SQLite store: one writer, many readers, and files that outlive both.  The only package that imports sqlite3.

``gpuwatch.db`` keeps runs, findings and devices for good, and the newest packed evidence up to half of the budget.
``readings-*.db`` are segments of raw readings, dropped whole, oldest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuwatch.interfaces import Run
from gpuwatch.store.files import SQLITE_VERSION
from gpuwatch.store.store_options import StoreLimits
from gpuwatch.store.writer import Store

if TYPE_CHECKING:
    from gpuwatch.store.reader import Reader


def __getattr__(name: str) -> Any:  # the type of the requested name
    if name != "Reader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpuwatch.store.reader import Reader  # imports numpy, which the writer does not need

    globals()[name] = Reader
    return Reader


__all__ = ["SQLITE_VERSION", "Reader", "Run", "Store", "StoreLimits"]
